"""A fact that preflight said once and that holds from then on."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sonde.rules.rule import Look


class StickyFact(NamedTuple):
    """A fact, in plain values; there is none yet where `since` is negative.

    Attributes:
        since: The step at which it was said.
        where: Names of parameters or modules.
        num: How many there are, those that are not named too.
        value: Its number; NaN where it has none.
        line: Of the user's code, such as `train.py:42`; empty where it is not known.
        more: What else it says, as pairs.
    """

    since: int = -1
    where: tuple[str, ...] = ()
    num: int = 0
    value: float = float("nan")
    line: str = ""
    more: tuple[tuple[str, Any], ...] = ()

    @property
    def at(self) -> str:
        """` (train.py:42)`, or nothing."""
        return f" ({self.line})" if self.line else ""

    def get(self, key: str) -> float:
        """Another number of the fact; NaN where it has none such."""
        value = dict(self.more).get(key)
        return float(value) if isinstance(value, int | float) else float("nan")


def kept(
    state: StickyFact, look: Look, *checks: str, accepts: Callable[[StickyFact], bool] | None = None
) -> StickyFact:
    """The fact as it was, or the first of this step that comes of one of the checks and is accepted."""
    if state.since >= 0:
        return state
    for fact in look.view.facts:
        if fact.kind == "preflight" and fact.data.get("check") in checks:
            found = _read(look.view.step, fact.data)
            if accepts is None or accepts(found):
                return found
    return state


def _read(step: int, data: Mapping[str, Any]) -> StickyFact:
    where, value = tuple(map(str, data.get("where") or ())), data.get("value")
    known = ("where", "num", "value", "line")
    more = tuple((key, item) for key, item in sorted(data.items()) if key not in known)
    number = float(value) if isinstance(value, int | float) else float("nan")
    return StickyFact(step, where, int(data.get("num") or len(where)), number, str(data.get("line") or ""), more)
