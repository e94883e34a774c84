"""Small real trainings, faulty and healthy, on which Sonde's diagnosis is judged."""
