"""What a rule is: it looks at one scene after the other and says when it sees its condition."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.picture import Picture
from sonde.rules.scene import Scene, Scenes


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

    scene: Scene
    """What was measured at this step."""
    scenes: Scenes
    """The latest value of every layer, for statistics that are measured in turns."""
    picture: Picture
    """The whole: the loss and its history, the schedule, gradients and updates as a whole."""


class Rule(Protocol):
    """A condition. Settings are fields of a frozen, keyword-only dataclass; the state is a named tuple.

    The class docstring is the manual page, with the headings of `HEADINGS`.

    Attributes:
        code: Three letters of its family and three digits, never used again.
        name: The condition in kebab-case, never the cure.
        needs: The tags (`loss`) and paths of layers (`grad/rms@`) without which it abstains. As long as none of them
            has come, a rule that gives its very state back is asked again at the next facts only; one that needs the
            loss or the rate is always asked.
        causes: What may bring the condition about, from the closed vocabulary; the likeliest first.
        quiet_steps: After so many steps without a sighting the finding is closed.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    causes: ClassVar[tuple[Cause, ...]]
    quiet_steps: ClassVar[int]

    def init(self) -> Any:
        """The state before the first step."""

    def step(self, state: Any, look: Look) -> tuple[Any, Sequence[Sighting]]:
        """Look at one more step. State in, state out; nothing else is remembered."""


HEADINGS = ("What it detects", "Why it matters", "Evidence", "What to do", "When it is wrong", "References")
