"""What a class must have to be applied as a rule: checked when it comes in, so that nothing else of it can fail."""

import dataclasses
import math
import re
import reprlib
import typing
from collections.abc import Mapping
from typing import Any

from sonde.core.causes import Cause
from sonde.rules.rule import Against, For, Onset, onset_of
from sonde.rules.tiers import Tier

_CODE, _NAME = re.compile(r"[A-Z]{3}[0-9]{3}"), re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SETTINGS = (bool, int, float)


def check(kind: Any) -> bool:
    """True, of a class that can be applied as a rule.

    Raises:
        TypeError, ValueError: It cannot; the message says which part of it is wrong, and what is allowed.

    Example:
        >>> @dataclasses.dataclass
        ... class Mistaken:
        ...     code = "los1"
        >>> check(Mistaken)
        Traceback (most recent call last):
        ...
        ValueError: `Mistaken.code` must be three capital letters and three digits, such as ABC001, got 'los1'.
    """
    fields = {item.name for item in _fields(kind)}
    _demand(_matches(_CODE, _get(kind, "code")), kind, "code", "three capital letters and three digits, such as ABC001")
    _demand(_matches(_NAME, _get(kind, "name")), kind, "name", "lower-case words joined by '-', such as loss-spike")
    needs, quiet = _get(kind, "needs"), _get(kind, "quiet_steps")
    for name, tags in (("needs", needs), ("reads", getattr(kind, "reads", ()))):
        _demand(isinstance(tags, tuple) and all(isinstance(tag, str) and tag for tag in tags), kind, name,
                'a tuple of tags, such as ("loss",)')  # fmt: skip
    _demand(type(quiet) is int and quiet > 0, kind, "quiet_steps", "a whole number above 0")
    _check_claims(kind)
    _demand(isinstance(onset_of(kind), Onset), kind, "onset", "an `Onset`")
    _demand("tier" not in fields and getattr(kind, "tier", "stable") in set(Tier), kind, "tier",
            "`Tier.STABLE` or `Tier.PREVIEW`, and no setting")  # fmt: skip
    for name, type_ in typing.get_type_hints(kind).items():
        if name in fields and not _is_setting(type_):
            raise TypeError(
                f"the setting `{kind.__name__}.{name}` must be a bool, int, float or tuple of these, got {type_}."
            )
    try:
        rule = kind()
        rule.init()
    except Exception as error:
        raise ValueError(f"`{kind.__name__}().init()` fails: {type(error).__name__}: {error}") from error
    _demand(callable(getattr(rule, "step", None)), kind, "step", "a method `step(state, look)`")
    return True


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return dataclasses.fields(kind)
    raise TypeError(f"a rule must be a dataclass, whose fields are its settings, got {kind!r}.")


def _check_claims(kind: Any) -> None:
    claims = _get(kind, "points_to")
    allowed = "`For(why)` or `Against(why)` for each cause, with a finite weight"
    _demand(isinstance(claims, Mapping), kind, "points_to", allowed)
    for cause in claims:
        if not isinstance(cause, Cause):
            raise ValueError(f"`{kind.__name__}.points_to` names {cause!r}, which is no member of `Cause`.")
    several = (each if type(each) is tuple else (each,) for each in claims.values())  # a claim is a named tuple
    said = [claim for each in several for claim in each]
    are_claims = all(isinstance(claim, For | Against) and math.isfinite(claim.weight) for claim in said)
    _demand(are_claims, kind, "points_to", allowed)


def _get(kind: Any, name: str) -> Any:
    if not hasattr(kind, name):
        raise TypeError(f"`{kind.__name__}` has no `{name}`.")
    return getattr(kind, name)


def _demand(is_right: bool, kind: Any, name: str, allowed: str) -> None:
    if not is_right:
        raise ValueError(f"`{kind.__name__}.{name}` must be {allowed}, got {reprlib.repr(getattr(kind, name, None))}.")


def _matches(pattern: re.Pattern[str], text: Any) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def _is_setting(type_: Any) -> bool:
    if typing.get_origin(type_) is tuple:
        return all(item in _SETTINGS or item is Ellipsis for item in typing.get_args(type_))
    return type_ in _SETTINGS
