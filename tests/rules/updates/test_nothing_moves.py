from sonde.core.findings import Severity
from sonde.rules.updates.nothing_moves import NothingMoves

from ..traces import falling, judge, rows

NAMES = ("a.weight", "a.bias", "b.weight")


def run(num: int, size: float, **more: object) -> list[dict[str, float]]:
    table = rows(num, loss=falling(num), **{"lr": 0.1, **more})
    table[0] |= {f"weight/norm@{name}": 1.0 for name in NAMES}
    for step, row in enumerate(table):
        row[f"update/norm@{NAMES[step % 3]}"] = size
    return table


def test_no_gradient_at_all_and_no_update_is_critical_at_the_fourth_step() -> None:
    seen = judge(NothingMoves(), run(10, 0.0))
    assert (seen[0][0], seen[0][1].severity) == (4, Severity.CRITICAL)
    assert "no gradient" in seen[0][1].message


def test_gradients_that_are_gone_when_the_optimiser_steps_are_seen_even_where_decay_moves() -> None:
    table = rows(10, loss=falling(10), lr=0.1, grad__norm=1.0, grad__norm_applied=0.0)
    assert judge(NothingMoves(), table)[0][0] == 4


def test_gradients_and_a_rate_without_updates_need_a_round_over_all_tensors() -> None:
    table = run(12, 0.0, grad__norm=1.0, grad__norm_applied=1.0)
    table[0]["grad/norm@a.weight"] = 1.0
    assert judge(NothingMoves(), table)[0][0] == 6


def test_a_rate_that_is_zero_from_the_start_counts_and_one_that_fell_to_it_does_not() -> None:
    ended = [0.1] * 5 + [0.0] * 20
    assert judge(NothingMoves(), rows(10, loss=1.0, lr=0.0))[0][0] == 4
    assert not judge(NothingMoves(), rows(25, loss=1.0, lr=ended, grad__norm=1.0, grad__norm_applied=1.0))


def test_weights_that_move_say_nothing() -> None:
    assert not judge(NothingMoves(), run(30, 0.01, grad__norm=1.0, grad__norm_applied=1.0))


def test_it_abstains_on_a_run_of_losses_alone() -> None:
    assert not judge(NothingMoves(), rows(30, loss=1.0))
    assert not judge(NothingMoves(), rows(30, loss=1.0, lr=0.1))
