"""What can be set: a field a key, its type what is allowed. `docs/reference/configuration.md` is the manual."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from sonde.alerts.config import AlertsConfig
from sonde.alerts.config import read as read_alerts
from sonde.core import settings
from sonde.core.errors import SettingError
from sonde.core.strict_json import Json
from sonde.sinks.choices import Choice
from sonde.sinks.choices import read as read_sinks


@dataclass(frozen=True, kw_only=True, slots=True)
class Cadence:
    """Steps between two measurements of a family; None is what `sonde.probes.cadences` has for the device."""

    layers: int | None = None
    cosines: int | None = None
    updates: int | None = None
    rotating: int | None = None
    histograms: int | None = None
    blocks: int | None = None
    process: int | None = None
    resources: int | None = None
    inputs: int | None = None
    trivial_loss: int | None = None
    batches: int | None = None
    spectra: int | None = None
    early_steps: int | None = None

    @property
    def given(self) -> dict[str, int]:
        """Those that were set."""
        return {name: number for name in self.__slots__ if (number := getattr(self, name)) is not None}

    def __post_init__(self) -> None:
        for name, number in self.given.items():
            least = 0 if name == "early_steps" else 1
            if number < least:
                raise SettingError(f"must be at least {least}, got {number}.", f"cadence.{name}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Probes:
    """Which probes measure, each by the name of its file in `sonde.probes`."""

    learning_rates: bool = True
    gradients: bool = True
    weights: bool = True
    preflight: bool = True
    settings: bool = True
    activations: bool = True
    gains: bool = True
    attention: bool = True
    second_moments: bool = True
    phases: bool = True
    predictiveness: bool = True
    hosts: bool = True
    allocators: bool = True
    memory: bool = True
    flops: bool = True
    reductions: bool = True
    devices: bool = True
    batches: bool = True
    trivial_loss: bool = True
    features: bool = True
    logits: bool = True
    spectra: bool = True
    operators: bool = False

    @property
    def on(self) -> frozenset[str]:
        """The names of those that measure."""
        return frozenset(name for name in self.__slots__ if getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """What the loss of a step is, and how it is smoothed.

    Args:
        micro: What the loss of an accumulated step is of its micro-losses: their mean, or their sum where they are
            given as they are differentiated.
        ema: Whether its moving average (`loss/ema`) is recorded.
        decay: β of the average and of the moving moments, in [0.95, 0.999]; larger is smoother and later.
    """

    micro: Literal["mean", "sum"] = "mean"
    ema: bool = True
    decay: float = 0.99

    def __post_init__(self) -> None:
        if not 0.95 <= self.decay <= 0.999:
            raise SettingError(f"must be in [0.95, 0.999], got {self.decay}.", "loss.decay")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The whole configuration.

    Args:
        preset: Settings that go together: `sonde.config.presets`.
        runs: Folder in which a run gets its own where none is named.
        budget: Share of the step time that watching may take, in (0, 1]; infinite for no limit.
        floor_s: Seconds a step that it may always take, whatever the share, above 0; None is what `monitor.budget` has
            for the device.
        console: What is printed, to stderr.
        console_s: Seconds between two of its lines, above 0.
        total_steps: How many steps there will be, at least 1, for the time that is left; None where it is not known.
        total_epochs: How many epochs there will be, likewise.
        doctor: Where rows are judged.
        profile: A file of rules' settings, as `sonde calibrate` writes.
        cadence: How often families are measured.
        probes: Which probes measure.
        loss: What the loss of a step is, and how it is smoothed.
        rules: Settings of rules by name, as `rules.configuring.configured` takes them.
        sinks: Loggers to be fed.
        alerts: What is told when, and to whom.
    """

    preset: Literal["none", "quiet", "stability", "tuning"] = "none"
    runs: str = "runs"
    budget: float = 0.01
    floor_s: float | None = None
    console: Literal["auto", "live", "lines", "verbose", "quiet"] = "auto"
    console_s: float = 30.0
    total_steps: int | None = None
    total_epochs: int | None = None
    doctor: Literal["process", "thread", "off"] = "process"
    profile: str = ""
    cadence: Cadence = Cadence()
    probes: Probes = Probes()
    loss: LossConfig = LossConfig()
    rules: Mapping[str, Any] = field(default_factory=dict)
    sinks: tuple[Choice, ...] = ()
    alerts: AlertsConfig = field(default_factory=AlertsConfig)

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 1 and self.budget != math.inf:
            raise SettingError(f"must be in (0, 1], or infinite for no limit, got {self.budget}.", "budget")
        if self.floor_s is not None and not 0 < self.floor_s < math.inf:
            raise SettingError(f"must be above 0 seconds and finite, got {self.floor_s}.", "floor_s")
        if not self.console_s > 0:
            raise SettingError(f"must be above 0 seconds, got {self.console_s}.", "console_s")
        for name in ("total_steps", "total_epochs"):
            if (length := getattr(self, name)) is not None and length < 1:
                raise SettingError(f"must be at least 1, got {length}; leave it out where it is not known.", name)
        if not self.runs:
            raise SettingError("must be a folder, got an empty text.", "runs")

    def to_json(self) -> dict[str, Json]:
        """The tables again, as TOML would have them, without secrets."""
        plain = {item.name: settings.shown(getattr(self, item.name)) for item in fields(self)}
        return {**plain, "sinks": [choice.to_json() for choice in self.sinks], "alerts": self.alerts.to_json()}


def read(table: Mapping[str, Any]) -> Config:
    """The configuration in a table.

    Raises:
        SettingError: a key or a value is wrong; `key` says which.
    """
    plain = {name: item for name, item in table.items() if name not in _READERS}
    read = {name: reader(name, table[name]) for name, reader in _READERS.items() if name in table}
    return replace(settings.read(Config, plain), **read)


def _rules(key: str, given: Any) -> dict[str, Any]:
    from sonde.rules.configuring import configured  # numpy and all: not before a script that has no use for it

    found = {name: settings.literal(item) for name, item in settings.flat(settings.table_of(key, given))}
    for name, item in found.items():
        try:
            configured({name: item})
        except (TypeError, ValueError) as error:
            raise SettingError(f"is refused: {error}", f"{key}.{name}") from error
    return found


def _alerts(key: str, given: Any) -> AlertsConfig:
    return read_alerts(settings.table_of(key, given))


_READERS: Mapping[str, Callable[[str, Any], Any]] = {"rules": _rules, "sinks": read_sinks, "alerts": _alerts}
"""Of tables whose names are not known beforehand."""
