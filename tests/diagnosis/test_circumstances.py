"""What is read off a run about how it is made up, and what stays unknown."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from sonde.core.model_table import ModelTable, ParameterRow
from sonde.core.parameter_kinds import Kind
from sonde.diagnosis.circumstances import Circumstances
from sonde.rules.layer_kinds import Kinds
from sonde.rules.step_view import Fact, Layers, StepView
from sonde.signals import states

FP16, BF16, FLOAT32 = 65504.0, 3.3895e38, 3.4028e38


def _view(
    step: int = 1, layers: Mapping[str, Mapping[str, float]] | None = None, facts: Sequence[Fact] = (), **scalars: float
) -> StepView:
    """A step; tags of scalars have a double underscore where they have a slash."""
    of_layers = {path: [Layers(tuple(some), np.array(list(some.values())))] for path, some in (layers or {}).items()}
    return StepView(step, {tag.replace("__", "/"): value for tag, value in scalars.items()}, of_layers, facts)


def _after(*views: StepView) -> Circumstances:
    circumstances = Circumstances()
    for view in views:
        circumstances = circumstances.after(view)
    return circumstances


def _outputs(limit: float, *names: str) -> StepView:
    sizes = {name: 1.7 * (place + 1) for place, name in enumerate(names)}
    rooms = {name: float(np.float32(math.log2(limit / size))) for name, size in sizes.items()}
    return _view(layers={"act/headroom": rooms, "act/absmax": sizes})


def _weights(**largest: float) -> StepView:
    return _view(layers={"weight/absmax": {name.replace("__", "."): value for name, value in largest.items()}})


WEIGHTS = _weights(embed__weight=0.1, up__weight=0.3, up__bias=0.7, down__weight=0.9)


def test_nothing_is_known_of_nothing() -> None:
    assert _after(_view(loss=1.0)) == Circumstances()


@pytest.mark.parametrize(("limit", "is_fp16"), [(FP16, True), (BF16, False), (FLOAT32, False)])
def test_outputs_tell_fp16_by_the_largest_number_of_their_format(limit: float, is_fp16: bool) -> None:
    assert _after(WEIGHTS, _outputs(limit, "embed", "up", "down")).is_fp16 is is_fp16


def test_that_nothing_is_fp16_is_known_when_most_modules_with_weights_were_looked_at() -> None:
    looks = [WEIGHTS, _outputs(FLOAT32, "embed", "act"), _outputs(FLOAT32, "act")]
    assert _after(*looks).is_fp16 is None
    assert _after(*looks, _outputs(FLOAT32, "up")).is_fp16 is False
    assert _after(*looks, _outputs(FP16, "up")).is_fp16 is True
    lost = {"up": math.nan, "down": math.nan}
    assert _after(*looks, _view(layers={"act/headroom": lost, "act/absmax": lost})).is_fp16 is None


def _with_weights_in(dtype: str) -> StepView:
    row = ParameterRow(name="up.weight", kind=Kind.MATRIX, shape=(4, 4), dtype=dtype)
    return StepView(1, {}, {}, (), Kinds(ModelTable(parameters=(row,))))


@pytest.mark.parametrize(("dtype", "is_short"), [("float16", True), ("bfloat16", True), ("float32", False)])
def test_whether_weights_are_kept_in_16_bits_is_what_the_model_table_says(dtype: str, is_short: bool) -> None:
    assert _after(_with_weights_in(dtype)).is_short is is_short


def test_weights_that_come_to_be_kept_in_16_bits_are_noticed_and_without_a_table_nothing_is_known() -> None:
    assert _after(_with_weights_in("float32"), _with_weights_in("bfloat16")).is_short is True
    assert _after(WEIGHTS).is_short is None


def test_sequences_recurrence_and_attention_are_told_by_what_is_measured_of_them() -> None:
    assert _after(_view(batch__size=32.0)).is_sequence is False
    assert _after(_view(batch__size=32.0, batch__sequence=20.0)).is_sequence is True
    assert _after(_weights(rnn__weight_hh_l0=0.3)).is_recurrent is True
    assert _after(WEIGHTS).is_recurrent is False
    assert _after(_view(layers={"attn/entropy_relative": {"attn": 0.8}})).is_attentive is True
    absent = Fact("not-measured", {"tag": "attn/*", "reason": "no attention was seen in the calls of the model"})
    assert _after(_view(facts=[absent])).is_attentive is False
    compiled = Fact("not-measured", {"tag": "attn/*@blocks.0", "reason": "it lies in a compiled region"})
    assert _after(_view(facts=[compiled])).is_attentive is None


def test_a_cross_entropy_that_is_hidden_by_compilation_is_unknown() -> None:
    def told(reason: str) -> bool | None:
        return _after(_view(facts=[Fact("not-measured", {"tag": "logits/log_z", "reason": reason})])).is_classifying

    assert told("no cross-entropy was computed, 3 times in a row") is False
    assert told("a model has compiled modules") is None
    assert _after(_view(logits__log_z=2.0)).is_classifying is True


@pytest.mark.parametrize(
    ("optimizer", "group", "has_moments", "has_state"),
    [
        ("AdamW", {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}, True, True),
        ("SGD", {"momentum": 0.9}, False, True),
        ("SGD", {"momentum": 0.0}, False, False),
        ("Lion", {"beta1": 0.9, "beta2": 0.99}, False, True),
        ("LBFGS", {}, False, None),
    ],
)
def test_optimisers_are_known_by_their_settings(
    optimizer: str, group: Mapping[str, float], has_moments: bool, has_state: bool | None
) -> None:
    told = Fact("optimizer", {"optimizer": optimizer, "groups": [{"lr": 0.1, **group}]})
    known = _after(_view(facts=[told]))
    assert (known.has_moments, known.has_state) == (has_moments, has_state)
    adam = Fact("optimizer", {"optimizer": "Adam", "groups": [{"beta1": 0.9, "epsilon": 1e-8}]})
    both = _after(_view(facts=[told, adam]))
    assert (both.has_moments, both.has_state) == (True, True)


def test_a_rate_is_scheduled_from_the_step_on_at_which_that_of_any_group_changes() -> None:
    def groups(*rates: float) -> StepView:
        return _view(lr=rates[0], layers={"lr": {str(i): rate for i, rate in enumerate(rates)}})

    assert not _after(groups(0.1, 0.2), groups(0.1, 0.2)).is_scheduled
    assert _after(groups(0.1, 0.2), groups(0.1, 0.3), groups(0.1, 0.2)).is_scheduled


def test_what_is_known_survives_a_checkpoint() -> None:
    known = _after(WEIGHTS, _outputs(FLOAT32, "embed"), _view(lr=0.1, clip__limit=1.0, memory__buffers=0.0))
    assert states.load(states.dump(known), Circumstances()) == known
    assert known.looked == {"embed"}
