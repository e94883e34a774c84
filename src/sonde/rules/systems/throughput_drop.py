"""SYS001 throughput-drop."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, count
from sonde.core.quantities import share as percent
from sonde.rules.history.workload import Workload
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.signals.medians import middle

_TAGS = ("throughput/tokens_per_s", "throughput/samples_per_s")
_MOST_BLOCKS = 64


class ThroughputDropState(NamedTuple):
    """The values of the block that is under way, the largest of each before, and how many blocks in a row were slow."""

    tag: str = ""
    values: tuple[float, ...] = ()
    fastest: tuple[float, ...] = ()
    num_slow: int = 0
    since: int = -1
    own: float = 0.0
    """The largest of the block, had it not had to wait for a processor."""
    seconds: float = 0.0
    """That the block, and slow ones right before it, took."""
    work: Workload = Workload()


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputDrop:
    """The training has become much slower than it was.

    What it detects:
        - Even the fastest of the last `block` steps is slower than `warning` times the usual speed, which is the median
          over earlier blocks, in `confirmed` blocks in a row.
        - Half as many blocks are enough if the speed is below half of that, and they took `least_s` seconds.
        - Speed is tokens a second if they are known, otherwise samples a second, otherwise steps a second. If the
          number of samples varies from step to step, it is samples a second.
        - The training must be slow even without the time in which its thread was ready and had no processor
          (`time/starved`): other work on the machine is not the training's fault.
        - The first two blocks are left out.
        - Critical: the speed is below `critical` times the usual one. Otherwise it is a warning.

    Why it matters:
        The same result takes twice the time and money. A machine that throttles or a disk that stalls rarely recovers
        by itself.

    Evidence:
        `throughput/tokens_per_s`, `throughput/samples_per_s` or `time/step`, now and before.

    What to do:
        - See which part takes longer: `time/data` (loader, disk), `time/forward` and `time/backward` (a throttled or
          shared processor, longer sequences, hooks that pile up), or `time/optimizer`.

    When it is wrong:
        - A curriculum with larger examples has fewer of them a second.
        - Other work that shares a core, its caches or its clock with the training, or that keeps the helper threads
          waiting, slows the training down without starving it.

    References:
        None: half of the speed for a warning, and a fifth for critical, are this rule's own choice.
    """

    code: ClassVar[str] = "SYS001"
    name: ClassVar[str] = "throughput-drop"
    onset: ClassVar[Onset] = Onset.SUDDEN
    needs: ClassVar[tuple[str, ...]] = ("time/step",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.SLOWDOWN: For("the speed fell and stayed low"),
    }
    quiet_steps: ClassVar[int] = 60

    block: int = 12
    confirmed: int = 6
    warning: float = 0.5
    critical: float = 0.2
    least_s: float = 0.5

    def init(self) -> ThroughputDropState:
        """Before the first step."""
        return ThroughputDropState()

    def step(self, state: ThroughputDropState, look: Look) -> tuple[ThroughputDropState, Sequence[Sighting]]:
        """Look at the speed of one more step."""
        work = state.work.after(look.view)
        if work.varies and not state.work.varies and not state.tag:
            state = self.init()  # what came before was steps a second
        if work is not state.work:
            state = state._replace(work=work)
        tag, speed = self._speed(state, look)
        if not (math.isfinite(speed) and speed > 0):
            return state, ()
        values, own = (*state.values, speed), max(state.own, speed / own_share(look))
        took = look.view.value("time/step")
        seconds = state.seconds + (took if 0 < took < math.inf else 0.0)
        if len(values) < self.block:
            return state._replace(tag=tag, values=values, own=own, seconds=seconds), ()
        fast = max(values)
        typical = middle(state.fastest[2:]) if len(state.fastest) > 4 else float("nan")
        is_slow = own < self.warning * typical
        num = state.num_slow + 1 if is_slow else 0
        since = state.since if num > 1 else max(0, look.view.step - self.block + 1)
        fastest = state.fastest if is_slow else (*state.fastest, fast)
        if len(fastest) > _MOST_BLOCKS:
            fastest = (*fastest[:2], *fastest[2::2])
        state = ThroughputDropState(tag, (), fastest, num, since, seconds=seconds if is_slow else 0.0, work=work)
        strong = own < 0.5 * self.warning * typical and seconds > self.least_s
        if num < (self.confirmed / 2 if strong else self.confirmed):
            return state, ()
        severity = Severity.CRITICAL if fast < self.critical * typical else Severity.WARNING
        unit = {_TAGS[0]: "tokens", _TAGS[1]: "samples"}.get(tag, "samples" if work.varies else "steps")
        message = (
            f"the last {count(self.block, 'step')} ran at {amount(fast)} {unit} a second or less, "
            f"{percent(fast / typical)} of the usual {amount(typical)}"
        )
        shown = tag or "time/step"
        value, expected = (fast, typical) if tag else (1 / fast, 1 / typical)
        evidence = Evidence(tag=shown, step=look.view.step, value=value, expected=expected)
        return state, (Sighting(severity, message, evidence=(evidence,), since=since),)

    def _speed(self, state: ThroughputDropState, look: Look) -> tuple[str, float]:
        """What is measured and how fast this step was; once tokens or samples are known, nothing else counts."""
        known = state.tag
        for tag in (known,) if known else _TAGS:
            if tag in look.view:
                return tag, look.view.value(tag)
        seconds = look.view.value("time/step")
        return known, state.work.of(look.view) / seconds if seconds > 0 and not known else float("nan")


def own_share(look: Look) -> float:
    """The part of a step in which the training ran or waited for something of its own, not for a processor.

    What other work on the machine takes is none of the training's doing; 1 where it is not known.
    """
    seconds, starved = look.view.value("time/step"), look.view.value("time/starved")
    return 1 - min(starved / seconds, 0.95) if seconds > 0 and starved > 0 else 1.0
