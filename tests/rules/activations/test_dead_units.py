from sonde.core.findings import Severity
from sonde.rules.activations.dead_units import DeadUnits

from ..traces import alarms, falling, flat, judge, rows, worst


def zeros(*shares: float) -> dict[str, float]:
    return {f"grad/zeros@{layer}.weight": share for layer, share in enumerate(shares)}


def test_a_network_without_any_gradient_is_a_warning_at_the_second_look() -> None:
    seen = judge(DeadUnits(), [row | zeros(1.0, 1.0) for row in rows(5, loss=1.4)])
    assert alarms(seen)[0][0] == 2


def test_mostly_zero_gradients_are_information_while_the_loss_falls() -> None:
    seen = judge(DeadUnits(), [row | zeros(0.7, 0.2) for row in rows(200, loss=falling(200))])
    assert seen[0][0] == 3
    assert worst(seen) is Severity.INFO


def test_and_a_warning_where_it_is_stuck() -> None:
    seen = judge(DeadUnits(), [row | zeros(0.7, 0.2) for row in rows(120, loss=flat(120, noise=0.01))])
    assert alarms(seen)[0][0] == 100
    assert alarms(seen)[0][1].where == ("0.weight",)


def test_silent_units_of_a_module_are_named() -> None:
    table = [row | {"act/dead@relu": 0.8, "act/dead@other": 0.1} for row in rows(3, loss=1.0)]
    assert judge(DeadUnits(), table)[0][1].where == ("relu",)


def test_half_zero_outputs_and_constant_biases_are_healthy() -> None:
    measured = {"act/zeros@relu": 0.6, "act/constant@relu": 0.2, "act/positive@relu": 0.4, "act/constant@linear": 1.0}
    assert not judge(DeadUnits(), [row | measured | zeros(0.3, 0.3) for row in rows(200, loss=flat(200))])


def test_embeddings_are_sparse_by_nature() -> None:
    assert not judge(DeadUnits(), [row | {"grad/zeros@embed.weight": 0.99} for row in rows(150, loss=flat(150))])


def test_units_that_fell_silent_are_no_trouble_to_a_training_that_keeps_most_of_what_it_learned() -> None:
    shares = [min(0.95, 0.02 * i) for i in range(300)]
    for level, severity in ((0.3, Severity.INFO), (1.3, Severity.WARNING)):
        losses = [*falling(100, end=level, noise=0.01), *flat(200, level, noise=0.01)]
        table = [row | zeros(share, 0.1) for row, share in zip(rows(300, loss=losses), shares, strict=True)]
        assert worst(judge(DeadUnits(), table)) is severity
