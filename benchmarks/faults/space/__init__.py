"""A space of trainings to draw from, the faults that may befall them, and labels from counterfactual twins."""
