"""Rules about validation against training: GEN."""
