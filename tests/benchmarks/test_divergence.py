"""The trainings that blow up, and how it is counted whether there was a warning."""

from benchmarks.faults.divergence import above_the_edge, outcome


def test_a_rate_above_the_edge_is_warned_of_before_the_loss_is_no_longer_finite() -> None:
    one = outcome(above_the_edge, 0)
    assert one.finite_steps is not None
    assert one.lead is not None
    assert 0 < one.lead <= one.finite_steps
    assert one.is_critical
