"""Trainings of kinds that neither the scenarios nor the space of trainings has, in the many hands of public scripts."""
