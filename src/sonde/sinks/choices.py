"""Sinks that are asked for by name, with settings, as a configuration does."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sonde.core import settings
from sonde.core.errors import PluginError, SettingError
from sonde.core.strict_json import Json
from sonde.sinks.catalogue import SINKS

if TYPE_CHECKING:
    from sonde.sinks.sink import Sink  # numpy


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Choice:
    """A sink by name.

    Args:
        name: One of the catalogue's.
        settings: Arguments of the sink, such as `{"project": "demo"}`.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        said = [repr(self.name), *(f"{name}={item!r}" for name, item in settings.shown(self.settings).items())]
        return f"Choice({', '.join(said)})"

    def make(self) -> "Sink":
        """The sink itself.

        Raises:
            MissingExtra: its package is not installed; the message has the command.
        """
        sink: Sink = SINKS.load(self.name)(**self.settings)
        return sink

    def to_json(self) -> Json:
        """As it is written in a configuration, without secrets."""
        return {"sink": self.name, **settings.shown(self.settings)} if self.settings else self.name


def read(key: str, given: Any) -> tuple[Choice, ...]:
    """Choices out of a list of names, or of tables with a name (`sink`) and settings.

    Raises:
        SettingError: no sink has such a name or setting, or the value is wrong.

    Example:
        >>> read("sinks", ["tensorboard", {"sink": "wandb", "project": "demo"}])[1]
        Choice('wandb', project='demo')
        >>> read("sinks", [{"sink": "wandb", "projct": "demo"}])
        Traceback (most recent call last):
        ...
        sonde.core.errors.SettingError: `sinks[0].projct` is no setting; did you mean `sinks[0].project`?
            Allowed: name, project, selection.
    """
    if isinstance(given, str):
        given = settings.value(key, tuple[str, ...], given)
    if not isinstance(given, list | tuple):
        raise SettingError(
            f'must be a list such as ["tensorboard", {{sink = "wandb", project = "demo"}}], got {given!r}.', key
        )
    return tuple(_choice(f"{key}[{index}]", item) for index, item in enumerate(given))


def _choice(key: str, given: Any) -> Choice:
    table = dict(given) if isinstance(given, Mapping) else {"sink": given}
    if "sink" not in table:
        raise SettingError("needs `sink`: the name of one.", key)
    name = settings.value(f"{key}.sink", str, table.pop("sink"))
    try:
        kind = SINKS.load(name)
    except PluginError as error:
        raise SettingError(f"is refused: {error}", key) from error
    kinds = _settable(kind)
    for setting in table:
        if setting not in kinds:
            raise settings.unknown(key, setting, kinds)
    return Choice(
        name=name,
        settings={setting: settings.value(f"{key}.{setting}", kinds[setting], item) for setting, item in table.items()},
    )


def _settable(kind: Callable[..., Any]) -> dict[str, Any]:
    """The arguments of a sink that a file can say, with their types."""
    made = kind.__init__ if isinstance(kind, type) else kind  # type: ignore[misc]
    hints = typing.get_type_hints(made)
    names = [name for name in inspect.signature(kind).parameters if name in hints]
    return {name: hints[name] for name in names if hints[name] is not Any}
