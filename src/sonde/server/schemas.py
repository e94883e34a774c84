"""What answers look like, for `/openapi.json`."""

from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, Literal

from sonde.server.lines import Line


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The table of runs."""

    schema: Literal[1]
    folder: str
    total: int
    pending: int
    runs: list[Line]


@dataclass(frozen=True, kw_only=True)
class Tags:
    """Tags, sorted."""

    schema: Literal[1]
    tags: list[str]
    total: int


@dataclass(frozen=True, kw_only=True)
class Mute:
    """A rule whose findings do not count: the one that begins at a step, or all."""

    code: str
    first_step: int | None


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What people said of a run last."""

    note: str
    tags: list[str]
    mutes: list[Mute]
    updated: float


@dataclass(frozen=True, kw_only=True)
class NotesAnswer:
    """What holds after an entry."""

    schema: Literal[1]
    notes: Notes


@dataclass(frozen=True, kw_only=True)
class Precision:
    """How many alarms of a rule were right in the project's own trainings."""

    right: int
    alarms: int


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding, as `sonde diagnose --json` prints it, and what the page adds."""

    id: str
    muted: bool
    tier: Literal["stable", "preview"] | None
    precision: Precision | None
    code: str
    name: str
    severity: Literal["info", "warning", "critical"]
    first_step: int
    last_step: int
    open: bool
    where: list[str]
    message: str
    evidence: list[dict[str, Any]]
    causes: list[dict[str, Any]]
    remedies: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase of the learning rate; `from` and `to` are steps."""

    phase: Literal["warmup", "constant", "decay"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened."""

    step: int | None
    time: float
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Events:
    """What happened, newest last."""

    schema: Literal[1]
    events: list[Event]


@dataclass(frozen=True, kw_only=True)
class LayerPath:
    """A statistic that exists of layers."""

    path: str
    layers: int
    kind: Literal["parameter", "module"]


@dataclass(frozen=True, kw_only=True)
class LayerPaths:
    """The statistics that exist of layers."""

    schema: Literal[1]
    paths: list[LayerPath]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule and its manual page in Markdown, with the guide that its findings open."""

    schema: Literal[1]
    code: str
    name: str
    tier: Literal["stable", "preview"] | None
    precision: Precision | None
    page: str
    guide: str


@dataclass(frozen=True, kw_only=True)
class Error:
    """What is wrong, what is allowed, what to do."""

    what: str
    allowed: str
    do: str


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A request that was not answered."""

    schema: Literal[1]
    error: Error


Run = make_dataclass(
    "Run",
    [
        ("schema", Literal[1]),
        *((one.name, one.type) for one in fields(Line)),
        ("environment", dict[str, Any]),
        ("model", dict[str, Any] | None),
        ("schedule", list[Phase]),
        ("diagnosis", Literal["recorded", "replayed", "working", "none"]),
        ("groups", list[dict[str, Any]]),
        ("findings", list[Finding]),
        ("not_measured", list[str]),
        ("notes", Notes),
        ("problems", list[str]),
        ("branches", list[dict[str, Any]]),
        ("ranks", list[int]),
        ("evaluations", list[int]),
        ("num_tags", int),
    ],
    kw_only=True,
    frozen=True,
)
"""A run with all that its page begins with: its line in the table, and more."""


@dataclass(frozen=True, kw_only=True)
class NewNote:
    """An entry: a tag or note has a `text`, a mute a `code` and, of one finding alone, its `first_step`."""

    kind: Literal["mute", "unmute", "tag", "untag", "note"]
    text: str | None = field(default=None)
    code: str | None = field(default=None)
    first_step: int | None = field(default=None)
