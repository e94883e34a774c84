"""The catalogue's rules with settings by name."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from sonde.core.causes import Cause
from sonde.rules.catalogue import all_rules
from sonde.rules.configuring import configured
from sonde.rules.gradients.gain_drift import GainDrift
from sonde.rules.rule import Claims, Look, Sighting


@dataclass(frozen=True, kw_only=True, slots=True)
class Many:
    code: ClassVar[str] = "XXX001"
    name: ClassVar[str] = "many-kinds"
    needs: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {}
    quiet_steps: ClassVar[int] = 1

    strict: bool = False
    band: tuple[float, float] = (0.0, 1.0)
    epochs: tuple[int, ...] = (2, 3)
    least: int = 1

    def __post_init__(self) -> None:
        if self.least < 1:
            raise ValueError(f"`Many(least=...)` must be at least 1, got {self.least}.")

    def init(self) -> None:
        return None

    def step(self, state: None, look: Look) -> tuple[None, Sequence[Sighting]]:
        return state, ()


def _only(overrides: dict[str, object]) -> Any:
    (rule,) = configured(overrides, kinds=(Many,))
    return rule


def test_without_overrides_every_rule_is_there_with_its_defaults() -> None:
    assert configured({}) == [kind() for kind in all_rules()]


def test_code_and_name_are_both_a_rule_and_others_stay_as_they_are() -> None:
    rules = configured({"GRD008.window": 4, "gain-drift.threshold": 1, "gap-from-start": False, "GEN001": True})
    changed = GainDrift(window=4, threshold=1.0)
    expected = [changed if kind is GainDrift else kind() for kind in all_rules() if kind.code != "GEN003"]
    assert rules == expected
    assert [type(rule.threshold) for rule in rules if isinstance(rule, GainDrift)] == [float]


def test_every_setting_of_every_rule_can_be_given_its_own_default() -> None:
    overrides = {
        f"{kind.name}.{field.name}": field.default
        for kind in all_rules()
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
    }
    assert len(overrides) > 100
    assert configured(overrides) == [kind() for kind in all_rules()]


def test_flags_and_several_values_are_settings_too() -> None:
    assert _only({"XXX001.strict": True, "XXX001.band": [1, 2.5], "XXX001.epochs": [4, 5, 6]}) == Many(
        strict=True, band=(1.0, 2.5), epochs=(4, 5, 6)
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("GRD08.window", "there is no rule `GRD08`; did you mean `GRD008`?"),
        ("gain-drif", "there is no rule `gain-drif`; did you mean `gain-drift`?"),
        ("grd008.window", "there is no rule `grd008`; did you mean `GRD008`?"),
        ("zzzz", "there is no rule `zzzz`; `sonde rules` lists them all."),
        ("GRD008.windows", "`GRD008 gain-drift` has no setting `windows`; did you mean `GRD008.window`?"),
        ("gain-drift.code", "`GRD008 gain-drift` has no setting `code`; its settings: `threshold`, `window`"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_right_one(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        configured({name: False})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GEN003", 0, "`GEN003` switches a rule on or off and must be true or false, got 0."),
        ("GRD008.window", 4.0, "`GRD008.window` must be a whole number, got 4.0."),
        ("GRD008.window", True, "`GRD008.window` must be a whole number, got True."),
        ("GRD008.threshold", "1", "`GRD008.threshold` must be a number, got '1'."),
        ("GRD008.threshold", float("nan"), "`GRD008.threshold` must be a number, got nan."),
        ("GRD008.threshold", None, "`GRD008.threshold` must be a number, got None."),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(name: str, value: object, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        configured({name: value})


def test_lists_are_checked_item_by_item_and_in_length() -> None:
    for value, said in (
        ([1.0], "must have 2 values, got 1"),
        (1.0, "must be a list, got 1.0"),
        (["a", 1], "`XXX001.band[0]`"),
    ):
        with pytest.raises(TypeError, match=re.escape(said)):
            _only({"XXX001.band": value})
    with pytest.raises(TypeError, match=re.escape("`XXX001.strict` must be true or false, got 1")):
        _only({"XXX001.strict": 1})


def test_a_setting_is_given_once() -> None:
    with pytest.raises(ValueError, match=re.escape("`GRD008.window` and `gain-drift.window` are the same setting")):
        configured({"GRD008.window": 4, "gain-drift.window": 4})


def test_what_the_rule_itself_refuses_is_its_own_error() -> None:
    with pytest.raises(ValueError, match=re.escape("`Many(least=...)` must be at least 1, got 0.")):
        _only({"many-kinds.least": 0})
