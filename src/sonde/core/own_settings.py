"""What a run's own settings change about its diagnosis: a received one may switch off the rule that would speak."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from sonde.core import printable
from sonde.core.errors import FormatError
from sonde.core.json_fields import list_of, member, text
from sonde.core.strict_json import Json, dumps

_MOST, _LONGEST = 10, 200  # named in a sentence, and letters of each; JSON has all


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnSettings:
    """The settings of rules that a run was recorded with and is judged by, where they are not the defaults.

    Args:
        off: Codes of rules that are left out.
        changed: Values by `CODE.setting`.
        ignored: What is stored as a setting and is none, or has a value that is refused, with the reason.

    Example:
        >>> print(OwnSettings(off=("LOS002",), changed={"GRD008.window": 8}))
        LOS002 off, GRD008.window = 8
    """

    off: tuple[str, ...] = ()
    changed: Mapping[str, Json] = field(default_factory=dict, hash=False)
    ignored: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __bool__(self) -> bool:
        """Whether they change anything."""
        return bool(self.off or self.changed)

    def __str__(self) -> str:
        said = [*(f"{code} off" for code in self.off), *(f"{key} = {dumps(it)}" for key, it in self.changed.items())]
        return _listed(said)

    @property
    def said_ignored(self) -> str:
        """What is ignored, in one line; empty where nothing is."""
        return _listed([f"{name} ({reason.rstrip('.')})" for name, reason in self.ignored.items()])

    def to_json(self) -> dict[str, Json]:
        return {"off": list(self.off), "changed": dict(self.changed), "ignored": dict(self.ignored)}

    @classmethod
    def from_json(cls, data: Json) -> "OwnSettings":
        """What `to_json` wrote.

        Raises:
            FormatError: a key is missing or holds something else.
        """
        return cls(
            off=member(data, "off", list_of(text)),
            changed=member(data, "changed", _table),
            ignored={name: str(reason) for name, reason in member(data, "ignored", _table).items()},
        )


def _table(value: Json) -> dict[str, Json]:
    if not isinstance(value, Mapping):
        raise FormatError(f"expected an object, got {reprlib.repr(value)}.")
    return {str(key): item for key, item in value.items()}


def _listed(said: list[str]) -> str:
    more = f" and {len(said) - _MOST} more" if len(said) > _MOST else ""
    return printable.one_line(
        ", ".join(each if len(each) <= _LONGEST else f"{each[:_LONGEST]}…" for each in said[:_MOST]) + more
    )
