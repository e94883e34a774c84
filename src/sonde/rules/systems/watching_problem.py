"""SYS006 watching-problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import count
from sonde.rules.rule import Cause, Claims, Evidence, Look, Severity, Sighting


class WatchingProblemState(NamedTuple):
    """Steps whose details were left behind so far."""

    num_dropped: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchingProblem:
    """Sonde itself has trouble: something is not measured, or measurements were dropped.

    What it detects:
        - Sonde reports a problem of its own (the event `monitor-problem`).
        - Or the detailed measurements of steps were dropped, because there was no room for them (`monitor/dropped`).
        - Always information: the training is not affected.

    Why it matters:
        A rule that lacks its measurements is silent, which is not the same as health.

    Evidence:
        `monitor/dropped`; the text of the problem.

    What to do:
        - Report the problem with its text.
        - If details are dropped, Sonde's background thread is too slow: measure less often.

    When it is wrong:
        - It is never an alarm.

    References:
        None.
    """

    code: ClassVar[str] = "SYS006"
    name: ClassVar[str] = "watching-problem"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ("monitor/dropped",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {}
    quiet_steps: ClassVar[int] = 1000

    def init(self) -> WatchingProblemState:
        """Before the first step."""
        return WatchingProblemState()

    def step(self, state: WatchingProblemState, look: Look) -> tuple[WatchingProblemState, Sequence[Sighting]]:
        """Look at what is said of one more step."""
        problems = [str(f.data.get("reason", "")) for f in look.view.facts if f.kind == "monitor-problem"]
        if problems:
            return state, (Sighting(Severity.INFO, f"Sonde has a problem of its own: {problems[0]}"),)
        if look.view.value("monitor/dropped") > 0:
            state = WatchingProblemState(state.num_dropped + 1)
            message = f"the detailed measurements of {count(state.num_dropped, 'step')} were dropped for lack of room"
            evidence = Evidence(
                tag="monitor/dropped", step=look.view.step, value=float(state.num_dropped), expected=0.0
            )
            return state, (Sighting(Severity.INFO, message, evidence=(evidence,)),)
        return state, ()
