"""Rules about the learning-rate schedule: SCH."""
