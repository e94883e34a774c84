"""The catalogue's rules with settings of the user's own, by name."""

import dataclasses
import difflib
import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from sonde.rules.catalogue import all_rules
from sonde.rules.rule import Rule
from sonde.rules.tiers import Tier, informing, tier_of


def configured(overrides: Mapping[str, object], *, kinds: Iterable[type[Rule]] | None = None) -> list[Rule]:
    """Every rule with its default settings, but for those that are given by name.

    A name is a rule's code or name (`GEN003`, `gap-from-start`), then `False` leaves the rule out and `True` keeps it;
    or a rule's code or name, a point and one of its settings (`GRD008.window`, `gain-drift.window`), then the value
    takes the place of the default. `tier` is a setting of every rule: "stable", or "preview" for one that is never to
    alarm. A number is expected where the default is one: any number, but not NaN, for one
    with a decimal point; a whole one for a whole one, of at most a million, or 10,000 for
    a window; a list or tuple of so many for several.

    Args:
        overrides: Values by name; none leaves every rule as it is.
        kinds: The rules to choose from; all of the catalogue by default.

    Raises:
        ValueError: No rule, or no setting of it, has the name, a setting is given twice, or the rule refuses the value.
        TypeError: A value is of another kind than the setting.

    Example:
        >>> rules = configured({"gain-drift.window": 4, "GRD008.threshold": 1, "GEN003": False})
        >>> [(rule.window, rule.threshold) for rule in rules if rule.code == "GRD008"]
        [(4, 1.0)]
        >>> any(rule.code == "GEN003" for rule in rules)
        False
        >>> configured({"GRD008.windw": 4})
        Traceback (most recent call last):
        ...
        ValueError: `GRD008 gain-drift` has no setting `windw`; did you mean `GRD008.window`?
    """
    kinds = all_rules() if kinds is None else tuple(kinds)
    by_name = _by_name(kinds)
    switches: dict[str, str] = {}
    is_on: dict[str, bool] = {}
    settings: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        which, point, field = name.partition(".")
        kind = _kind(which, by_name)
        key = f"{kind.code}.{field}" if point else kind.code
        if switches.setdefault(key, name) != name:
            raise ValueError(f"`{switches[key]}` and `{name}` are the same setting; give it once.")
        if not point:
            is_on[kind.code] = _switch(name, value)
        else:
            settings.setdefault(kind.code, {})[field] = _value(name, _type(kind, field), value)
    return [_made(kind, **settings.get(kind.code, {})) for kind in kinds if is_on.get(kind.code, True)]


def _made(kind: type[Rule], *, tier: Tier | None = None, **settings: Any) -> Rule:
    rule = kind(**settings)
    return informing(rule) if (tier or tier_of(kind)) is Tier.PREVIEW else rule


def departures(overrides: Mapping[str, object]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """What of these settings, which `configured` takes, is not as by default: codes that are off, values by name.

    Example:
        >>> departures({"overfitting": False, "gain-drift.window": 4, "GRD008": True})
        (('GEN001',), {'GRD008.window': 4})
    """
    by_name = _by_name(all_rules())
    off, changed = [], {}
    for name, value in overrides.items():
        which, point, field = name.partition(".")
        kind = _kind(which, by_name)
        if not point and value is False:
            off.append(kind.code)
        elif point and (given := _value(name, _type(kind, field), value)) != _default(kind, field):
            changed[f"{kind.code}.{field}"] = given
    return tuple(off), changed


def settings_of(kind: type[Rule]) -> dict[str, Any]:
    """The settings of a rule with their defaults.

    Example:
        >>> from sonde.rules.losses.loss_plateau import LossPlateau
        >>> settings_of(LossPlateau)["patience"]
        50
    """
    return {item.name: item.default for item in dataclasses.fields(kind)}  # type: ignore[arg-type]  # rules are that


def _default(kind: type[Rule], field: str) -> Any:
    if field == "tier":
        return tier_of(kind)
    return settings_of(kind)[field]


def kind_of(name: str) -> type[Rule]:
    """The rule of that code or name.

    Raises:
        ValueError: there is none; the message has the nearest.
    """
    return _kind(name, _by_name(all_rules()))


def _by_name(kinds: Iterable[type[Rule]]) -> dict[str, type[Rule]]:
    return {name: kind for kind in kinds for name in (kind.code, kind.name)}


def _kind(which: str, by_name: Mapping[str, type[Rule]]) -> type[Rule]:
    if which in by_name:
        return by_name[which]
    by_fold = {name.casefold(): name for name in by_name}
    nearest = difflib.get_close_matches(which.casefold(), by_fold, n=1)
    hint = f"did you mean `{by_fold[nearest[0]]}`?" if nearest else "`sonde rules` lists them all."
    raise ValueError(f"there is no rule `{which}`; {hint}")


def _switch(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise TypeError(f"`{name}` switches a rule on or off and must be true or false, got {value!r}.")


def _type(kind: type[Rule], field: str) -> Any:
    fields = settings_of(kind)
    if field in fields:
        return typing.get_type_hints(kind)[field]
    if field == "tier":
        return Tier
    nearest = difflib.get_close_matches(field, [*fields, "tier"], n=1)
    known = ", ".join(f"`{name}`" for name in fields) or "none"
    hint = f"did you mean `{kind.code}.{nearest[0]}`?" if nearest else f"its settings: {known}."
    raise ValueError(f"`{kind.code} {kind.name}` has no setting `{field}`; {hint}")


def _value(name: str, kind: Any, value: object) -> Any:
    """The value as the setting holds it; a bool is no number, although Python says so."""
    if typing.get_origin(kind) is tuple:
        return _several(name, kind, value)
    if kind is Tier:
        if value not in set(Tier):
            raise ValueError(f'`{name}` must be "stable" or "preview", got {value!r}.')
        return Tier(str(value))
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        most = _MOST_KEPT if name.rpartition(".")[2] in _KEEPING else _MOST
        if abs(value) > most:
            raise ValueError(f"`{name}` must be at most {most:,}; got more.")
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
        return float(value)
    raise TypeError(f"`{name}` must be {_WORDS[kind]}, got {value!r}.")


def _several(name: str, kind: Any, value: object) -> tuple[Any, ...]:
    items = typing.get_args(kind)
    if not isinstance(value, list | tuple):
        raise TypeError(f"`{name}` must be a list, got {value!r}.")
    if items[-1] is Ellipsis:
        items = (items[0],) * len(value)
    if len(items) != len(value):
        raise TypeError(f"`{name}` must have {len(items)} values, got {len(value)}.")
    return tuple(_value(f"{name}[{i}]", item, each) for i, (item, each) in enumerate(zip(items, value, strict=True)))


_MOST = 1_000_000  # steps, values or looks: more is a mistake
# Of every layer as many values are kept from the start: a run that was received may ask for any number.
_MOST_KEPT, _KEEPING = 10_000, frozenset({"window", "history", "span"})
_WORDS = {bool: "true or false", int: "a whole number", float: "a number"}
