from sonde.core.findings import Severity
from sonde.rules.updates.layer_not_learning import LayerNotLearning

from ..traces import alarms, falling, judge, rows

NAMES = ("a.weight", "a.bias", "b.weight", "b.bias")


def run(num: int, still: set[str], lr: float = 0.1) -> list[dict[str, float]]:
    """Gradients of all at every fifth step, updates in turns."""
    table = rows(num, loss=falling(num), lr=lr)
    for row in table[::5]:
        row |= {f"grad/norm@{name}": 1.0 for name in NAMES}
    for step, row in enumerate(table):
        name = NAMES[step % 4]
        row[f"update/norm@{name}"] = 0.0 if name in still else 0.01
    return table


def test_a_layer_that_has_gradients_and_never_moves_is_a_warning_by_the_third_step() -> None:
    table = [row | {"lr@0": 0.1, "lr@1": 0.0} for row in run(12, {"a.weight", "a.bias"})]
    seen = alarms(judge(LayerNotLearning(), table))
    assert seen[0][0] == 3
    assert seen[0][1].where == ("a.weight", "a.bias")


def test_a_single_parameter_needs_a_second_look() -> None:
    assert alarms(judge(LayerNotLearning(), run(12, {"b.bias"})))[0][0] == 8


def test_an_expert_without_tokens_has_a_gradient_of_long_ago_only() -> None:
    table = run(60, {"a.weight", "a.bias"})
    for row in table[5:]:
        for name in ("a.weight", "a.bias"):
            row.pop(f"grad/norm@{name}", None)
    assert not judge(LayerNotLearning(), table)


def test_weights_whose_norm_changes_do_move_between_the_looks() -> None:
    table = run(60, {"a.weight", "a.bias"})
    for number, row in enumerate(table[::5]):
        row |= {"weight/norm@a.weight": 1.0 + 0.1 * number, "weight/norm@a.bias": 2.0 - 0.1 * number}
    assert not judge(LayerNotLearning(), table)


def test_one_that_has_moved_before_may_rest() -> None:
    table = run(8, set()) + run(40, {"a.weight"})[1:]
    assert not judge(LayerNotLearning(), table)


def test_a_rate_of_zero_for_all_is_another_rule_s() -> None:
    assert not judge(LayerNotLearning(), run(12, set(NAMES), lr=0.0))


def test_a_matrix_far_below_its_peers_is_information_while_training_goes_well() -> None:
    ratios = {f"update/ratio@{layer}.weight": 1e-3 for layer in range(6)} | {"update/ratio@2.weight": 1e-8}
    moves = {f"update/norm@{layer}.weight": 1.0 for layer in range(6)}
    table = [row | ratios | moves | {"grad/norm@0.weight": 1.0} for row in rows(200, loss=falling(200), lr=0.1)]
    seen = judge(LayerNotLearning(), table)
    assert {sighting.severity for _, sighting in seen} == {Severity.INFO}
    assert seen[0][1].where == ("2.weight",)
    assert seen[0][0] == 3


def test_a_bias_in_front_of_a_batch_normalisation_has_rounding_for_a_gradient() -> None:
    table = run(40, {"b.bias"})
    table[0] |= {f"grad/rms@{name}": 5e-8 if name == "b.bias" else 0.02 for name in NAMES}
    assert not judge(LayerNotLearning(), table)
    table[0]["grad/rms@b.bias"] = 1e-3
    assert alarms(judge(LayerNotLearning(), table))
