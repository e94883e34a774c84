"""Rules about number formats: NUM."""
