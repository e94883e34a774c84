"""States of rules as plain values: bit for bit, and the rules go on as if nothing had happened."""

import enum
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import FormatError
from sonde.core.frames import MISSING, Columns, Frame
from sonde.diagnosis.gain_monitor import GainMonitor
from sonde.diagnosis.post_epoch import PostEpoch
from sonde.rules.catalogue import all_rules
from sonde.rules.gradients.gain_drift import GainDrift
from sonde.rules.history.run_summary import RunSummaries, RunSummary
from sonde.rules.rule import Look
from sonde.rules.step_view import Fact, StepView, StepViews
from sonde.signals.phases import Phase
from sonde.signals.states import dump, load

_SCALARS = (
    "loss", "lr", "grad/norm", "grad/cosine", "update/cosine", "update/ratio", "update/norm", "clip/factor",
    "clip/limit", "amp/scale", "label/entropy", "label/mean", "label/std", "logits/log_z", "loss/num_micro",
    "gain/mean", "weight/norm", "time/step", "time/data", "time/backward", "host/rss", "memory/peak", "memory/total",
    "memory/allocated", "throughput/samples_per_s", "throughput/tokens_per_s", "batch/size", "monitor/dropped",
    "val/loss", "epoch",
)  # fmt: skip
_LAYERS = (
    "act/absmax", "act/constant", "act/dead", "act/headroom", "act/nonfinite", "act/positive", "act/rms",
    "act/saturated", "adam/epsilon_share", "adam/v_ratio", "adam/zero_share", "attn/entropy", "attn/entropy_relative",
    "attn/logit_max", "batch/absmax", "batch/mean", "batch/nonfinite", "batch/std", "gain/block", "grad/nonfinite",
    "grad/norm", "grad/p50", "grad/rms", "grad/zeros", "optimizer/weight_decay", "spectrum/condition",
    "spectrum/effective_rank", "update/absmax", "update/norm", "update/ratio", "weight/mean", "weight/nonfinite",
    "weight/norm", "weight/rms", "weight/std",
)  # fmt: skip
_SHARES = ("constant", "dead", "positive", "saturated", "share", "zeros", "relative", "cosine")
_CHECKS = (
    "accumulation-not-scaled", "batchnorm-few-values", "clip-before-unscale", "constant-labels", "constant-targets",
    "double-softmax",
    "eval-mode-in-training", "frozen-parameter", "half-loss", "input-scale", "log-of-probabilities",
    "missing-zero-grad", "nonfinite-input", "other-player", "parameter-not-in-optimizer", "probabilities-vanish",
    "summed-loss", "symmetric-units", "train-mode-in-evaluation", "zero-grad-misplaced",
)  # fmt: skip


def _looks(num: int, seed: int) -> Iterator[Look]:
    """A run that wanders: series come late, go missing, turn to NaN, climb and fall; layers join on the way."""
    rng = np.random.default_rng(seed)
    tags = [*_SCALARS, *(f"{path}@blocks.{i}.weight" for i in range(3) for path in _LAYERS)]
    few, all_of_them = Columns("step", tags[: len(_SCALARS) + len(_LAYERS)]), Columns("step", tags)
    level, pace = rng.normal(0, 1, len(tags)), rng.normal(0, 0.02, len(tags))
    is_share = np.array([tag.partition("@")[0].endswith(_SHARES) for tag in tags])
    views, runs = StepViews(), RunSummaries()
    summary_state = runs.init()
    for step in range(1, num + 1):
        level = level + pace + rng.normal(0, 0.05, len(tags))
        values = np.exp(np.clip(level, -60, 60)).astype(np.float32)
        for share, value in ((0.2, MISSING), (0.003, np.nan), (0.003, np.inf), (0.01, 0.0)):
            values[rng.random(len(tags)) < share] = value
        values = np.where(is_share & (values > 1), np.float32(1), values)
        columns = few if step < num // 3 else all_of_them
        facts = [Fact("skipped-step", {})] if rng.random() < 0.05 else []
        if rng.random() < 0.1:
            data = {"check": str(rng.choice(_CHECKS)), "where": ["a.weight"], "num": 2, "value": 0.5, "line": "t.py:3"}
            facts.append(Fact("preflight", data))
        view = views.take(step, [Frame(columns, step, 0.0, values[: columns.width])], facts)
        summary_state, run = runs.step(summary_state, view)
        yield Look(view, views, run)


class _Course(NamedTuple):
    """What became of a rule whose state went through text at some steps: what it said, and where that differed."""

    num_seen: int = 0
    differences: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def courses() -> dict[str, _Course]:
    rules = [kind() for kind in all_rules()]
    states: dict[str, list[Any]] = {rule.code: [rule.init()] for rule in rules}
    courses = {rule.code: _Course() for rule in rules}
    for place, look in enumerate(_looks(200, seed=7)):
        for rule in rules:
            kept, course = states[rule.code], courses[rule.code]
            if place in (0, 40, 150):
                kept.append(_through_text(kept[0], rule.init()))
            with np.errstate(all="ignore"):  # numbers as wild as these are for the rules' own tests
                outs = [rule.step(state, look) for state in kept]
            kept[:] = [state for state, _ in outs]
            seen = [tuple(sightings) for _, sightings in outs]
            differs = any(repr(other) != repr(seen[0]) for other in seen) or not all(_same(s, kept[0]) for s in kept)
            told = (f"at step {look.view.step}: {seen}",) if differs else ()
            courses[rule.code] = _Course(course.num_seen + len(seen[0]), course.differences + told)
    return courses


def _through_text(state: Any, like: Any) -> Any:
    return load(json.loads(json.dumps(dump(state), allow_nan=False)), like)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return bool((a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()))
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes()
    return bool(a == b)


@pytest.mark.parametrize("code", [rule.code for rule in all_rules()])
def test_a_rule_goes_on_from_its_saved_state_as_if_nothing_had_happened(
    code: str, courses: Mapping[str, _Course]
) -> None:
    assert courses[code].differences == ()


def test_the_random_run_makes_rules_speak(courses: Mapping[str, _Course]) -> None:
    speaking = [code for code, course in courses.items() if course.num_seen]
    assert len(speaking) > len(all_rules()) / 3, "else the states that were compared are nearly fresh ones"


@pytest.mark.parametrize("chain", [RunSummaries(), GainMonitor(), PostEpoch()], ids=lambda chain: type(chain).__name__)
def test_summaries_and_monitors_go_on_too(chain: Any) -> None:
    state, back = chain.init(), chain.init()
    for place, look in enumerate(_looks(200, seed=8)):
        if place in (0, 100):
            back = _through_text(state, chain.init())
        state, out = chain.step(state, look.view)
        back, again = chain.step(back, look.view)
        assert _same(out, again)
        assert _same(back, state)


_numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_values = st.recursive(
    _numbers
    | st.sampled_from([Phase.WARMUP, np.float64(2.5), np.bool_(True), np.int64(-3)])
    | st.lists(st.floats(), max_size=4).map(np.array)
    | st.frozensets(st.text(max_size=3), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(_values)
def test_whatever_a_state_holds_comes_back_bit_for_bit(value: Any) -> None:
    assert _same(_through_text(value, None), value)


def test_arrays_come_back_with_their_shape_and_their_missing_values_and_can_be_written_to() -> None:
    for array in (np.zeros((0, 128)), np.full((2, 3), MISSING), np.array(1.5), np.arange(6).reshape(2, 3).T):
        back = _through_text(array, array)
        assert back.tobytes() == array.tobytes()
        assert (back.shape, back.dtype) == (array.shape, array.dtype)
        back[...] = 0


class Other(NamedTuple):
    up: int = 0


class Colour(enum.Enum):
    RED = 1


def _fields(**changes: Any) -> Any:
    plain = dump(GainDrift().init())
    return {**plain, "fields": {**plain["fields"], **changes}}


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (dump(Other()), "must be a GainDriftState, got a Other"),
        (3, "must be a GainDriftState, got a int"),
        ({"state": "sonde.rules.nowhere:Thing", "fields": {}}, "written by another one"),
        ({"state": "os:system", "fields": {}}, "written by another one"),
        ({"state": "builtins:tuple", "fields": {}}, "written by another one"),
        ({"state": dump(Other())["state"], "fields": {"down": 1}}, "other fields than down"),
        ({"enum": f"{__name__}:Colour", "value": 7}, "not a valid Colour"),
        ({"array": "<f8", "shape": [2], "bytes": "!"}, "not a state that Sonde wrote"),
        ({"array": "O", "shape": [1], "bytes": ""}, "not a state that Sonde wrote"),
        ({"array": "<f8", "shape": None, "bytes": ""}, "not a state that Sonde wrote"),
        ({"tuple": 3}, "a list was expected"),
        ({"what": 3}, "an object with what"),
        (_fields(up=dump(GainDrift(history=7).init().up)), "`GainDriftState.up.history` is of other settings"),
        (_fields(up=None), "`GainDriftState.up` must be a DriftState, got a NoneType"),
    ],
)
def test_what_is_no_state_of_that_rule_is_refused(plain: Any, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        load(plain, GainDrift().init())


@pytest.mark.parametrize("value", [object(), np.array([None]), 1j, StepView(1, {}, {}, ())])
def test_what_is_not_plain_is_refused_when_it_is_written(value: Any) -> None:
    with pytest.raises(TypeError, match="a state must hold"):
        dump((1, value))


def test_an_empty_summary_is_plain() -> None:
    assert _same(_through_text(RunSummary(), RunSummary()), RunSummary())
