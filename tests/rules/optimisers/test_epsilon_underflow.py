from sonde.core.findings import Severity
from sonde.rules.optimisers.epsilon_underflow import EpsilonUnderflow

from ..traces import alarms, falling, flat, judge, rows


def run(losses: list[float], share: float, zero: float = 0.0) -> list[dict[str, float]]:
    table = rows(len(losses), loss=losses)
    for name in "abc":
        table[10] |= {f"adam/epsilon_share@{name}": share, f"adam/zero_share@{name}": zero}
    return table


def test_all_tensors_below_epsilon_are_a_warning_once_the_loss_is_known_to_be_stuck() -> None:
    seen = judge(EpsilonUnderflow(), run(flat(160, noise=0.01), 1.0))
    assert (seen[0][0], seen[0][1].severity) == (11, Severity.INFO)
    assert alarms(seen)[0][0] == 100


def test_elements_that_never_had_a_gradient_do_not_count() -> None:
    assert not judge(EpsilonUnderflow(), run(flat(160), 0.9, zero=0.9))


def test_a_training_that_goes_well_is_no_alarm() -> None:
    assert not alarms(judge(EpsilonUnderflow(), run(falling(300), 1.0)))


def test_it_abstains_for_other_optimisers() -> None:
    assert not judge(EpsilonUnderflow(), rows(160, loss=flat(160)))


def test_tiny_steps_and_next_to_nothing_learned_need_no_hundred_steps() -> None:
    table = [row | {"update/ratio@0.weight": 1e-5} for row in run(flat(160, noise=0.01), 1.0)]
    assert alarms(judge(EpsilonUnderflow(), table))[0][0] == 44


def test_every_element_below_epsilon_and_short_steps_need_no_hundred_steps_though_a_little_is_learned() -> None:
    losses = falling(90, start=3.3, end=2.9, noise=0.01)
    for share, ratio, steps in ((1.0, 5e-4, [44]), (0.9, 5e-4, []), (1.0, 5e-3, [])):
        table = [row | {"update/ratio@0.weight": ratio} for row in run(losses, share)]
        assert [step for step, _ in alarms(judge(EpsilonUnderflow(), table))] == steps
