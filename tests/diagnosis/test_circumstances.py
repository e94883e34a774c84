"""What is read off a run about how it is made up, and what stays unknown."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from sonde.diagnosis.circumstances import Circumstances
from sonde.rules.scene import Fact, Layers, Scene
from sonde.signals import states

FP16, BF16, FLOAT32 = 65504.0, 3.3895e38, 3.4028e38


def _scene(
    step: int = 1, layers: Mapping[str, Mapping[str, float]] | None = None, facts: Sequence[Fact] = (), **scalars: float
) -> Scene:
    """A step; tags of scalars have a double underscore where they have a slash."""
    of_layers = {path: [Layers(tuple(some), np.array(list(some.values())))] for path, some in (layers or {}).items()}
    return Scene(step, {tag.replace("__", "/"): value for tag, value in scalars.items()}, of_layers, facts)


def _after(*scenes: Scene) -> Circumstances:
    circumstances = Circumstances()
    for scene in scenes:
        circumstances = circumstances.after(scene)
    return circumstances


def _outputs(limit: float, *names: str) -> Scene:
    sizes = {name: 1.7 * (place + 1) for place, name in enumerate(names)}
    rooms = {name: float(np.float32(math.log2(limit / size))) for name, size in sizes.items()}
    return _scene(layers={"act/headroom": rooms, "act/absmax": sizes})


def _weights(**largest: float) -> Scene:
    return _scene(layers={"weight/absmax": {name.replace("__", "."): value for name, value in largest.items()}})


WEIGHTS = _weights(embed__weight=0.1, up__weight=0.3, up__bias=0.7, down__weight=0.9)


def test_nothing_is_known_of_nothing() -> None:
    assert _after(_scene(loss=1.0)) == Circumstances()


@pytest.mark.parametrize(("limit", "is_fp16"), [(FP16, True), (BF16, False), (FLOAT32, False)])
def test_outputs_tell_fp16_by_the_largest_number_of_their_format(limit: float, is_fp16: bool) -> None:
    assert _after(WEIGHTS, _outputs(limit, "embed", "up", "down")).is_fp16 is is_fp16


def test_that_nothing_is_fp16_is_known_when_most_modules_with_weights_were_looked_at() -> None:
    looks = [WEIGHTS, _outputs(FLOAT32, "embed", "act"), _outputs(FLOAT32, "act")]
    assert _after(*looks).is_fp16 is None
    assert _after(*looks, _outputs(FLOAT32, "up")).is_fp16 is False
    assert _after(*looks, _outputs(FP16, "up")).is_fp16 is True
    lost = {"up": math.nan, "down": math.nan}
    assert _after(*looks, _scene(layers={"act/headroom": lost, "act/absmax": lost})).is_fp16 is None


def test_weights_in_16_bits_have_few_binary_digits() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.uniform(0.1, 1, 40).astype(np.float32)
    names = [f"layer{i}__weight" for i in range(40)]
    as_fp16 = drawn.astype(np.float16).astype(np.float32)
    as_bf16 = (drawn.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    for short in (as_fp16, as_bf16):
        assert _after(_weights(**dict(zip(names, short.tolist(), strict=True)))).is_short is True
    assert _after(_weights(**dict(zip(names, drawn.tolist(), strict=True)))).is_short is False


def test_weights_of_zero_one_or_a_half_tell_no_format() -> None:
    assert _after(_weights(norm__weight=1.0, norm__bias=0.0, gate__weight=0.5)).is_short is None
    assert _after(_weights(norm__weight=1.0, up__weight=0.1)).is_short is False


def test_sequences_recurrence_and_attention_are_told_by_what_is_measured_of_them() -> None:
    assert _after(_scene(batch__size=32.0)).is_sequence is False
    assert _after(_scene(batch__size=32.0, batch__sequence=20.0)).is_sequence is True
    assert _after(_weights(rnn__weight_hh_l0=0.3)).is_recurrent is True
    assert _after(WEIGHTS).is_recurrent is False
    assert _after(_scene(layers={"attn/entropy_relative": {"attn": 0.8}})).is_attentive is True
    absent = Fact("not-measured", {"tag": "attn/*", "reason": "no attention was seen in the calls of the model"})
    assert _after(_scene(facts=[absent])).is_attentive is False
    compiled = Fact("not-measured", {"tag": "attn/*@blocks.0", "reason": "it lies in a compiled region"})
    assert _after(_scene(facts=[compiled])).is_attentive is None


def test_a_cross_entropy_that_is_hidden_by_compilation_is_unknown() -> None:
    def told(reason: str) -> bool | None:
        return _after(_scene(facts=[Fact("not-measured", {"tag": "logits/log_z", "reason": reason})])).is_classifying

    assert told("no cross-entropy was computed, 3 times in a row") is False
    assert told("a model has compiled modules") is None
    assert _after(_scene(logits__log_z=2.0)).is_classifying is True


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
    known = _after(_scene(facts=[told]))
    assert (known.has_moments, known.has_state) == (has_moments, has_state)
    adam = Fact("optimizer", {"optimizer": "Adam", "groups": [{"beta1": 0.9, "epsilon": 1e-8}]})
    both = _after(_scene(facts=[told, adam]))
    assert (both.has_moments, both.has_state) == (True, True)


def test_a_rate_is_scheduled_from_the_step_on_at_which_that_of_any_group_changes() -> None:
    def groups(*rates: float) -> Scene:
        return _scene(lr=rates[0], layers={"lr": {str(i): rate for i, rate in enumerate(rates)}})

    assert not _after(groups(0.1, 0.2), groups(0.1, 0.2)).is_scheduled
    assert _after(groups(0.1, 0.2), groups(0.1, 0.3), groups(0.1, 0.2)).is_scheduled


def test_what_is_known_survives_a_checkpoint() -> None:
    known = _after(WEIGHTS, _outputs(FLOAT32, "embed"), _scene(lr=0.1, clip__limit=1.0, memory__buffers=0.0))
    assert states.load(states.dump(known), Circumstances()) == known
    assert known.looked == {"embed"}
