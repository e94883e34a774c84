import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import FormatError
from sonde.core.remedies import Action, Remedy, Safety

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "findings.md"
HARMLESS = {Action.SAMPLE_MORE_OFTEN, Action.SAVE_SNAPSHOT}

jsonable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def lower_lr(**changes: Any) -> Remedy:
    plain = {
        "action": Action.LOWER_LR,
        "args": {"factor": 0.3},
        "safety": Safety.OPT_IN,
        "text": "lower the rate",
    }
    return Remedy(**(plain | changes))


def test_the_actions_are_exactly_the_closed_vocabulary() -> None:
    assert {action.value for action in Action} == {
        "lower-lr", "raise-lr", "clip", "lengthen-warmup", "smoother-schedule", "slower-schedule", "decay-lr",
        "use-bf16", "use-fp32", "use-loss-scaling", "add-dropout", "add-weight-decay", "lower-weight-decay",
        "add-label-smoothing", "more-capacity", "less-capacity", "more-data", "augment-data", "add-residuals",
        "add-layernorm", "reinitialise", "add-qk-norm", "add-z-loss", "bigger-batch", "accumulate-gradients",
        "fix-loop", "normalise-inputs", "skip-batch", "inspect-batch", "early-stop", "train-longer",
        "more-loader-workers", "free-graph", "smaller-batch", "shorter-sequences", "less-dropout",
        "check-data-loading", "check-dataset-size", "sample-more-often", "save-snapshot",
    }  # fmt: skip


def test_every_action_has_a_meaning_of_its_own() -> None:
    assert len({action.meaning for action in Action}) == len(Action)


def test_the_reference_page_lists_every_action_with_its_meaning() -> None:
    listed = re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [row for row in listed if row[0] in list(Action)] == [(action.value, action.meaning) for action in Action]


@pytest.mark.parametrize("action", Action)
def test_only_what_cannot_change_the_weights_may_be_automatic(action: Action) -> None:
    if action in HARMLESS:
        assert lower_lr(action=action, safety=Safety.AUTOMATIC).safety is Safety.AUTOMATIC
    else:
        with pytest.raises(ValueError, match=f"got {action.value}, which can change the path of the weights"):
            lower_lr(action=action, safety=Safety.AUTOMATIC)


@given(st.dictionaries(st.text(), jsonable, max_size=4), st.sampled_from([Safety.OPT_IN, Safety.ADVICE]))
def test_a_remedy_survives_strict_json(args: dict[str, Any], safety: Safety) -> None:
    remedy = lower_lr(args=args, safety=safety)
    written = json.dumps(remedy.to_json(), allow_nan=False)
    assert Remedy.from_json(json.loads(written)) == remedy


def test_numpy_numbers_in_args_become_plain_ones() -> None:
    remedy = lower_lr(args={"factor": np.float32(0.5), "num_steps": np.int64(3), "layers": ("a", "b")})
    assert json.dumps(remedy.to_json()["args"]) == '{"factor": 0.5, "num_steps": 3, "layers": ["a", "b"]}'


def test_args_do_not_change_with_the_mapping_they_were_given_as() -> None:
    given_args = {"factors": [0.5]}
    remedy = lower_lr(args=given_args)
    given_args["factors"].append(0.1)
    assert remedy.args == {"factors": [0.5]}


@pytest.mark.parametrize("value", [float("nan"), np.float32("inf"), object(), {1, 2}, b"bytes"])
def test_args_that_strict_json_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"`Remedy\(args=\.\.\.\)` must hold finite numbers"):
        lower_lr(args={"factor": value})


@pytest.mark.parametrize("args", [[1], "factor", {1: 2}])
def test_args_that_are_not_named_are_refused(args: object) -> None:
    with pytest.raises(TypeError, match="mapping with names as keys"):
        lower_lr(args=args)


def test_a_remedy_without_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`Remedy\(text=\.\.\.\)`"):
        lower_lr(text=" ")


def test_a_remedy_can_be_copied_pickled_and_put_into_a_set() -> None:
    remedy = lower_lr()
    assert copy.deepcopy(remedy) == pickle.loads(pickle.dumps(remedy)) == remedy
    assert len({remedy, lower_lr(), lower_lr(text="another")}) == 2


def test_reading_ignores_keys_it_does_not_know() -> None:
    assert Remedy.from_json(lower_lr().to_json() | {"proof": [1, 2]}) == lower_lr()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"action": "lower-rl"}, "action: .*'lower-rl'; did you mean 'lower-lr'?"),
        ({"action": 3}, "action: .*known: lower-lr, raise-lr"),
        ({"args": [0.3]}, "args"),
        ({"args": {"factor": float("nan")}}, "args"),
        ({"safety": "automatic"}, "safety"),
        ({"safety": None}, "safety"),
        ({"text": None}, "text: expected text"),
        ({"text": ""}, "text"),
    ],
)
def test_reading_says_which_key_is_wrong(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        Remedy.from_json(lower_lr().to_json() | change)


@pytest.mark.parametrize("key", ["action", "args", "safety", "text"])
def test_reading_says_which_key_is_missing(key: str) -> None:
    data = lower_lr().to_json()
    del data[key]
    with pytest.raises(FormatError, match=f"^{key}: missing"):
        Remedy.from_json(data)
