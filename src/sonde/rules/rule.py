"""What a rule is: it looks at one step after the other and says when it sees its condition.

All that a rule is written with can be imported from here.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, final

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.step_view import StepView, StepViews

__all__ = [
    "HEADINGS",
    "Against",
    "Cause",
    "Claims",
    "Evidence",
    "For",
    "Look",
    "Onset",
    "Rule",
    "Severity",
    "Sighting",
    "When",
    "causes_of",
    "claims_of",
    "onset_of",
]


class Sighting(NamedTuple):
    """A rule sees its condition at this step, and is sure of it: confirmation is the rule's own business.

    Attributes:
        severity: `INFO` where it is only worth knowing: then it is no alarm, but evidence for causes.
        message: What is wrong, with its numbers, in one sentence without a full stop.
        where: Parameters or modules concerned, the most telling first.
        evidence: The numbers and their series, the most telling first.
        since: The step at which it began, where that is earlier than this one.
    """

    severity: Severity
    message: str
    where: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    since: int | None = None


class Look(NamedTuple):
    """All that a rule may look at in a step."""

    view: StepView
    """What was measured at this step."""
    views: StepViews
    """The latest value of every layer, for statistics that are measured in turns."""
    run: RunSummary
    """The whole: the loss and its history, the schedule, gradients and updates as a whole."""

    def evidence(self, tag: str, value: float | None = None, expected: float | None = None) -> Evidence:
        """A number of this step, the measured one unless another is given, against what was expected."""
        return Evidence(
            tag=tag, step=self.view.step, value=self.view.value(tag) if value is None else value, expected=expected
        )


class Onset(enum.Enum):
    """What the first step of a rule's findings says of when the trouble began."""

    GRADUAL = enum.auto()
    """The condition was there before it was measured or confirmed."""
    SUDDEN = enum.auto()
    """It began at that very step: what comes later than the trouble is none of its causes."""
    AT_A_LOOK = enum.auto()
    """Likewise, but the tensor is only looked at every ten steps or so, and the finding dated by the look."""
    BACKDATED = enum.auto()
    """It is dated back to when it may have begun, often to the first step: it tells no onset."""
    OF_COLLAPSE = enum.auto()
    """It is worth knowing even of a training whose loss is no longer finite."""


class When(enum.StrEnum):
    """When a claim counts; the value stands behind the rule's code where signs are written (`LOS004!`)."""

    SEEN = ""
    """The rule has found something, of any severity."""
    ALARM = "!"
    """It is an alarm."""
    PLACED = "@"
    """It names places: an input, layers."""
    ONE_PLACE = "@1"
    """It names one place only."""
    FIRST = "^"
    """No alarm that tells its onset began before it or with it, and something else began later."""


@final
class For(NamedTuple):
    """What a rule sees speaks for a cause.

    Attributes:
        why: In a few words, what it shows then; said behind the finding's message.
        when: What must have been seen.
        weight: Log-odds that it adds. The built-in rules' are fitted to trainings with known faults
            (`sonde.diagnosis.weights`) and take the place of this.
    """

    why: str = ""
    when: When = When.SEEN
    weight: float = 1.0


@final
class Against(NamedTuple):
    """What a rule sees speaks against a cause; the same, with log-odds that it takes away."""

    why: str = ""
    when: When = When.SEEN
    weight: float = -1.0


Claims = For | Against | tuple[For | Against, ...]


class Rule(Protocol):
    """A condition. Settings are fields of a frozen, keyword-only dataclass; the state is a named tuple.

    The class docstring is the manual page, with the headings of `HEADINGS`.

    Attributes:
        code: Three letters of its family and three digits, never used again.
        name: The condition in kebab-case, never the cure.
        needs: The tags (`loss`) and paths of layers (`grad/rms@`) without which it abstains.
        points_to: Which causes the condition speaks for or against, from the closed vocabulary, and why.
        quiet_steps: After so many steps without a sighting the finding is closed.

    A rule may also have an `onset` (`Onset.GRADUAL` otherwise), a `tier` (`rules.tiers.Tier.STABLE` otherwise), a
    `guide`, the name of the guide that its findings open (`sonde explain` lists them; that of its family otherwise),
    and `reads`, tags and paths as in `needs`: then it is asked only in steps that bring one of them, or facts, while
    its finding is open, and while `waits(state)` says that it waits for something else. In other steps it would see
    nothing, and what it remembers would stay.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    points_to: ClassVar[Mapping[Cause, Claims]]
    quiet_steps: ClassVar[int]

    def init(self) -> Any:
        """The state before the first step."""

    def step(self, state: Any, look: Look) -> tuple[Any, Sequence[Sighting]]:
        """Look at one more step. State in, state out; nothing else is remembered."""


def onset_of(rule: type[Rule] | Rule) -> Onset:
    """What the first step of its findings says."""
    return getattr(rule, "onset", Onset.GRADUAL)


def reads_of(rule: type[Rule] | Rule) -> tuple[str, ...]:
    """The tags and paths of which one must have come for a rule to be asked; none but "" where it always is."""
    reads: tuple[str, ...] | None = getattr(rule, "reads", None)
    return ("",) if reads is None else reads


def claims_of(rule: type[Rule] | Rule) -> tuple[tuple[Cause, For | Against], ...]:
    """All that a rule says of causes, one after the other."""
    return tuple(
        (cause, claim)
        for cause, claims in rule.points_to.items()
        for claim in ((claims,) if isinstance(claims, For | Against) else claims)
    )


def causes_of(rule: type[Rule] | Rule) -> tuple[Cause, ...]:
    """The causes that a rule's condition speaks for."""
    return tuple(dict.fromkeys(cause for cause, claim in claims_of(rule) if isinstance(claim, For)))


HEADINGS = ("What it detects", "Why it matters", "Evidence", "What to do", "When it is wrong", "References")
