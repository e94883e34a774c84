"""ATT003 output-logits-drift."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from sonde.core.quantities import amount
from sonde.core.records import Float64, Int64
from sonde.rules.history.progress import is_lost
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting, When

_T = TypeVar("_T")


class OutputLogitsDriftState(NamedTuple):
    """The first and the last seven values of log Z and their steps, and the largest logit at the first."""

    values: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    largest: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLogitsDrift:
    """All output logits drift away together, which the loss does not show.

    What it detects:
        - log Z, the logarithm of the softmax's normaliser, is farther than `far` from 0, and moved away from 0 at two
          measurements in a row.
        - Measurements may be far apart. If log Z moved away at four of them or more, and at the last no more slowly
          than on average, it counts as having moved on at that pace since.
        - Nothing is said if the first log Z was above `many` but below the largest logit: the first outputs were not
          about even then.
        - Warning: the first log Z was above `many`, and the loss has risen far above its start.
        - Warning: the first log Z was above `many`, log Z is more than `least` times as far from 0 as at first, the
          loss has stopped falling with more than 15% of it left, and gradients have grown by half.
        - Information: all other cases. With few classes log Z is about the largest logit, which grows as the model
          becomes certain.

    Why it matters:
        Cross-entropy does not change when all logits shift together. But large logits cost precision, and in float16
        and bf16 the training diverges in the end.

    Evidence:
        `logits/log_z`, `logits/absmax`.

    What to do:
        - Add a z-loss w·log²Z, with w = 1e-4 from the start on, or 0.5/|log Z| once log Z has drifted.
        - Use weight decay on the output matrix, but not on its bias.
        - Lower the learning rate.

    When it is wrong:
        - With large vocabularies log Z starts at ln V (about 11 for 50,000 tokens).
        - A head that is sure of its classes has large logits, and log Z is then as large as the largest one.

    References:
        Chowdhery et al., PaLM, 2022 (z-loss). Wortsman et al., ICLR 2024.
    """

    code: ClassVar[str] = "ATT003"
    name: ClassVar[str] = "output-logits-drift"
    needs: ClassVar[tuple[str, ...]] = ("logits/log_z",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.OUTPUT_LOGIT_DRIFT: (For("log Z moves ever farther from zero"), For(when=When.ALARM)),
    }
    quiet_steps: ClassVar[int] = 400

    far: float = 10.0
    least: float = 4.0
    many: float = 2.5

    def init(self) -> OutputLogitsDriftState:
        """Before the first step."""
        return OutputLogitsDriftState()

    def waits(self, state: OutputLogitsDriftState) -> bool:
        """Whether the loss is looked at in between."""
        if len(state.values) < 3 or state.largest > state.values[0] > self.many:
            return False  # a first log Z below the largest logit is that logit, and not the number of outputs
        before, between, last = map(abs, state.values[-3:])
        return last > between > before

    def step(self, state: OutputLogitsDriftState, look: Look) -> tuple[OutputLogitsDriftState, Sequence[Sighting]]:
        """Look at the logits where they were measured, and at the loss in between."""
        value, run = look.view.value("logits/log_z"), look.run
        looked = bool(math.isfinite(value))
        if looked:
            largest = state.largest if state.values else look.view.value("logits/absmax")
            state = OutputLogitsDriftState(_kept(state.values, value), _kept(state.steps, look.view.step), largest)
        if not self.waits(state):
            return state, ()
        sizes = np.abs(state.values)
        by_now = sizes[-1] if looked else _by_now(sizes, np.array(state.steps), look.view.step)
        if not by_now > self.far:
            return state, ()
        wide = by_now > self.least * max(sizes[0], 1.0)
        stalled = run.num_losses >= 100 and not run.is_falling and run.progress < 0.85
        grown = run.grad_median > 1.5 * run.grad_start
        # Of few classes log Z is about the largest logit, which grows with certainty.
        many = state.values[0] > self.many
        alarm = many and ((wide and stalled and grown) or is_lost(run))
        if not (looked or alarm):
            return state, ()
        message = (
            f"log Z of the output logits moved from {amount(state.values[0])} to {amount(state.values[-1])} "
            "since it was first measured"
        )
        evidence = Evidence(tag="logits/log_z", step=state.steps[-1], value=state.values[-1], expected=state.values[0])
        severity = Severity.WARNING if alarm else Severity.INFO
        return state, (Sighting(severity, message, evidence=(evidence,), since=state.steps[0]),)


def _kept(seen: tuple[_T, ...], value: _T) -> tuple[_T, ...]:
    """The first one, and the last seven."""
    return (*seen, value) if len(seen) < 8 else (seen[0], *seen[2:], value)


def _by_now(sizes: Float64, steps: Int64, step: int) -> float:
    """What log Z has come to by a step, if it went on as it did, for no longer than it was seen to."""
    pace, mean = (sizes[-1] - sizes[-2]) / (steps[-1] - steps[-2]), (sizes[-1] - sizes[0]) / (steps[-1] - steps[0])
    steady = len(sizes) >= 4 and bool(np.all(np.diff(sizes) > 0)) and pace >= mean
    since = min(step - steps[-1], steps[-1] - steps[0])
    return float(sizes[-1] + pace * since) if steady else float(sizes[-1])
