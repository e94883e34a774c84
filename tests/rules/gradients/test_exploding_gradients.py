import numpy as np

from sonde.core.findings import Severity
from sonde.rules.gradients.exploding_gradients import ExplodingGradients

from ..traces import alarms, falling, flat, judge, rows, worst


def test_a_steady_explosion_with_a_rising_loss_is_seen_long_before_overflow() -> None:
    norms = [1.08**step for step in range(120)]
    losses = [2.0 + 0.02 * norm for norm in norms]
    seen = alarms(judge(ExplodingGradients(), rows(120, loss=losses, grad__norm=norms)))
    assert 55 < seen[0][0] < 90
    assert "growing" in seen[0][1].message


def test_four_doublings_within_a_few_steps_are_seen_at_the_first_chance() -> None:
    norms = [*flat(60), 3.0, 40.0, 900.0, 2e4]
    losses = [*flat(60), 1.0, 1.5, 30.0, 900.0]
    seen = alarms(judge(ExplodingGradients(), rows(64, loss=losses, grad__norm=norms)))
    assert seen[0][0] == 63
    assert worst(seen) is Severity.CRITICAL


def test_gradients_that_grow_on_leaving_a_plateau_of_a_falling_loss_are_no_alarm() -> None:
    norms = [0.01 * min(1.1**step, 60) for step in range(300)]
    seen = judge(ExplodingGradients(), rows(300, loss=falling(300), grad__norm=norms))
    assert not alarms(seen)


def test_three_spikes_that_undo_the_training_are_heavy_tails() -> None:
    norms, losses = np.array(flat(200)), np.array(flat(200))
    for at in (120, 150, 180):
        norms[at], losses[at + 1] = 80.0, 9.0
    seen = alarms(judge(ExplodingGradients(), rows(200, loss=losses.tolist(), grad__norm=norms.tolist())))
    assert seen[0][0] == 182
    assert seen[0][1].since == 121


def test_growth_with_depth_is_information_while_the_loss_falls() -> None:
    sizes = {f"grad/rms@{layer}.weight": 4.0 ** (6 - layer) for layer in range(7)}
    table = rows(40, loss=falling(40), grad__norm=flat(40))
    seen = judge(ExplodingGradients(), [row | sizes for row in table])
    assert worst(seen) is Severity.INFO
    assert seen[0][0] == 2


def test_nan_norms_and_missing_ones_are_left_to_other_rules() -> None:
    assert not judge(ExplodingGradients(), rows(30, loss=1.0, grad__norm=float("nan")))
    assert not judge(ExplodingGradients(), rows(30, loss=1.0))


def thrown(ratio: float, size: float) -> list[dict[str, float]]:
    """A first step at a hundred times the later norms, with an update of the first matrix by `ratio` of its norm."""
    table = rows(60, loss=falling(60), grad__norm=[200.0, 50.0, *flat(58, 2.0)])
    table[0] |= {"update/ratio@rnn.weight_ih_l0": ratio, "grad/rms@rnn.weight_ih_l0": size, "grad/rms@head.weight": 0.2}
    return table


def test_a_first_step_that_throws_the_weights_away_is_a_warning() -> None:
    seen = alarms(judge(ExplodingGradients(), thrown(2.0, 9.0)))
    assert [step for step, _ in seen] == [40]
    assert (seen[0][1].where, seen[0][1].since) == (("rnn.weight_ih_l0",), 1)


def test_smaller_steps_and_gradients_alike_in_all_matrices_are_no_alarm() -> None:
    assert not alarms(judge(ExplodingGradients(), thrown(0.5, 9.0)))
    assert not alarms(judge(ExplodingGradients(), thrown(2.0, 0.3)))


def test_norms_that_lie_decades_apart_may_double_three_times() -> None:
    # Four examples a batch that are all but learned: the norm is as large as what is still wrong among them.
    rng = np.random.default_rng(3)
    norms = np.exp(rng.normal(-3.5, 2.0, 300))
    losses = 0.02 * np.exp(rng.normal(0.0, 1.5, 300))
    losses[:20] = np.linspace(2.3, 0.05, 20)
    norms[:20] = 3.0
    norms[250:254] = [0.5, 1.1, 2.4, 9.0]
    losses[253] = 0.5
    assert not alarms(judge(ExplodingGradients(), rows(300, loss=losses.tolist(), grad__norm=norms.tolist())))
    norms[20:250] = 0.03 * np.exp(rng.normal(0.0, 0.3, 230))
    assert alarms(judge(ExplodingGradients(), rows(300, loss=losses.tolist(), grad__norm=norms.tolist())))
