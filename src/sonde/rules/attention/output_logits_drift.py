"""ATT003 output-logits-drift."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from sonde.core.records import Float64, Int64
from sonde.rules.progress import is_lost
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting, When

_T = TypeVar("_T")


class OutputLogitsDriftState(NamedTuple):
    """The first and the last seven values of log Z and their steps, and the largest logit at the first."""

    values: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    largest: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLogitsDrift:
    """All output logits wander away together, which the loss does not see.

    What it detects:
        log Z, the log of the softmax's normaliser, farther than `far` from 0 and moving away from it at two looks in a
        row. Information; a warning where log Z began above `many` (some dozen outputs or more: of few classes it is
        about the largest logit, which grows with certainty), and the loss is lost, or log Z is `least` times as far as
        at first while the loss has stopped falling with 15% of it left and gradients have grown by half. Nothing where
        it began above `many` but below the largest logit: then it did not begin with outputs that are about even.
        Looks may be far apart: where log Z rose at each of four or more, and at the last no more slowly than on the
        whole, it counts as having gone on at that pace since, for as long as it was seen to.

    Why it matters:
        Cross-entropy does not change when all logits shift, but their size costs precision, and in fp16 and bf16 it
        ends in a divergence.

    Evidence:
        `logits/log_z`, `logits/absmax`.

    What to do:
        A z-loss w·log²Z, with w = 1e-4 from the start on, or 0.5/|log Z| where it has drifted; weight decay on the
        output matrix and none on its bias; a lower rate.

    When it is wrong:
        Large vocabularies start with log Z = ln V (about 11 at 50,000). A head that is sure of its classes has large
        logits: log Z is then as large as the largest.

    References:
        Chowdhery et al., PaLM, 2022 (z-loss). Wortsman et al., ICLR 2024.
    """

    code: ClassVar[str] = "ATT003"
    name: ClassVar[str] = "output-logits-drift"
    needs: ClassVar[tuple[str, ...]] = ("logits/log_z",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.OUTPUT_LOGIT_DRIFT: (For("log Z wanders away"), For(when=When.ALARM)),
    }
    quiet_steps: ClassVar[int] = 400

    far: float = 10.0
    least: float = 4.0
    many: float = 2.5

    def init(self) -> OutputLogitsDriftState:
        """Before the first step."""
        return OutputLogitsDriftState()

    def step(self, state: OutputLogitsDriftState, look: Look) -> tuple[OutputLogitsDriftState, Sequence[Sighting]]:
        """Look at the logits where they were measured, and at the loss in between."""
        value, picture = look.scene.value("logits/log_z"), look.picture
        looked = bool(math.isfinite(value))
        if looked:
            largest = state.largest if state.values else look.scene.value("logits/absmax")
            state = OutputLogitsDriftState(_kept(state.values, value), _kept(state.steps, look.scene.step), largest)
        sizes = np.abs(state.values)
        # A first log Z below the largest logit is that logit, and not the number of outputs.
        if len(sizes) < 3 or state.largest > state.values[0] > self.many or not sizes[-1] > sizes[-2] > sizes[-3]:
            return state, ()
        by_now = sizes[-1] if looked else _by_now(sizes, np.array(state.steps), look.scene.step)
        if not by_now > self.far:
            return state, ()
        wide = by_now > self.least * max(sizes[0], 1.0)
        stalled = picture.num_losses >= 100 and not picture.is_falling and picture.progress < 0.85
        grown = picture.grad_median > 1.5 * picture.grad_start
        # Of few classes log Z is about the largest logit, which grows with certainty.
        many = state.values[0] > self.many
        alarm = many and ((wide and stalled and grown) or is_lost(picture))
        if not (looked or alarm):
            return state, ()
        message = f"log Z of the output logits is {state.values[-1]:.3g}, at the first look {state.values[0]:.3g}"
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
