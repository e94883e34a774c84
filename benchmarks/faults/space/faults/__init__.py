"""Faults: other values in a recipe, grouped by the place where the mistake is made."""
