"""LOS008 initial-loss-high."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When
from sonde.signals.medians import middle


class InitialLossHighState(NamedTuple):
    """The first losses, and whether it was said."""

    first: tuple[float, ...] = ()
    is_told: bool = False
    is_warned: bool = False
    sizes: tuple[float, ...] = ()
    """Numbers of examples and tokens in a batch: multiples of guessing that a sum would start at."""
    start: float = math.nan
    """Times what guessing, or an answer of zeros where that costs more, the model's first answers cost …"""
    least: float = math.inf
    """… and the least times what guessing costs so far, by the same targets each."""
    num_looks: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class InitialLossHigh:
    """The first losses are far above the cost of guessing.

    What it detects:
        Guessing means one constant answer that ignores the inputs. For classes it costs the entropy of the labels, for
        numbers the mean square of the targets.
        - The first loss is more than `factor` times the cost of guessing, or more than `drop` times the median of
          losses 11 to 20. This is information, and is said once.
        - It is a warning if the loss is still above `factor` times the cost of guessing after `least_steps` steps. It
          is not one if the loss starts at about the cost of guessing times the number of examples or tokens in a batch,
          as a summed loss does.
        - If Sonde reads the cost of guessing from the graph of the loss (`loss/relative`), units and sums do not
          matter, and targets far from zero are no bad start (`loss/zeros`). Then it is a warning at the second look, or
          as soon as the loss becomes NaN or infinite, if the first answers cost more than `far` times guessing and all
          later ones more than `factor` times.
        - It also is a warning after `least_steps` losses, if the first answers cost more than `factor` times guessing,
          and the best of at least `looks` looks more than `worse` times.

    Why it matters:
        A network should begin by guessing. If it begins confidently wrong, its output weights or its inputs are too
        large. If the loss is a multiple of the guess by the batch size, it is summed where a mean was meant.

    Evidence:
        The first `loss` against `label/entropy`, or against the losses right after it.

    What to do:
        Make the initial weights of the last layer smaller, normalise inputs, and check the `reduction` of the loss.

    When it is wrong:
        - Losses with further terms (penalties, several heads) have no such reference.
        - A loss that is summed on purpose is fine at a learning rate that allows for it.

    References:
        Karpathy, A recipe for training neural networks, 2019 ("verify loss at init"). He et al., Delving deep into
        rectifiers, ICCV 2015.
    """

    code: ClassVar[str] = "LOS008"
    name: ClassVar[str] = "initial-loss-high"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BAD_INITIALISATION: (
            For("the first losses are far above guessing"),
            For("the loss stays above the cost of guessing for long", when=When.ALARM),
        ),
        Cause.UNNORMALISED_INPUTS: For("the first losses are far above guessing"),
        Cause.WRONG_LOSS_REDUCTION: (
            For("the first loss is a multiple of the cost of guessing"),
            Against("measured by its own targets, where a sum changes nothing", when=When.ALARM),
        ),
        Cause.BATCH_TOO_SMALL: For(),
        Cause.LR_TOO_HIGH: Against("the loss was bad before the first step"),
        Cause.LR_SPIKE: Against("the loss was bad from the first step"),
        Cause.WARMUP_TOO_SHORT: Against("the start itself was bad"),
        Cause.TRAIN_EVAL_MISMATCH: Against("the first losses were in other units already"),
        Cause.EXPLODING_GRADIENTS: Against("the start itself was bad", when=When.ALARM),
        Cause.SCHEDULE_MISAPPLIED: Against("the start itself was bad", when=When.ALARM),
        Cause.CLIP_TOO_AGGRESSIVE: Against("gradients are large because the start was bad", when=When.ALARM),
        Cause.NO_LEARNABLE_SIGNAL: Against("the start itself was bad", when=When.ALARM),
        Cause.ATTENTION_ENTROPY_COLLAPSE: Against("the start itself was bad", when=When.ALARM),
        Cause.ATTENTION_LOGIT_GROWTH: Against("the start itself was bad", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 200

    factor: float = 2.0
    drop: float = 4.0
    least_steps: int = 150
    far: float = 4.0
    worse: float = 1.1
    looks: int = 8

    def init(self) -> InitialLossHighState:
        """Before the first step."""
        return InitialLossHighState()

    def step(self, state: InitialLossHighState, look: Look) -> tuple[InitialLossHighState, Sequence[Sighting]]:
        """Look at one more loss."""
        view, run = look.view, look.run
        sizes = [view.value(tag) for tag in ("batch/size", "batch/samples", "batch/tokens") if tag in view]
        if sizes:
            state = state._replace(sizes=tuple(sizes))
        share = view.value("loss/relative")
        if math.isfinite(share):
            zeros = view.value("loss/zeros") / view.value("loss/trivial")  # over guessing; NaN where not measured
            start = share / (zeros if zeros > 1 else 1.0) if not state.num_looks else state.start
            if not state.num_looks and 0 < run.loss_first < run.loss:  # it has risen before the first look
                start *= run.loss_first / run.loss
            state = state._replace(start=start, least=min(state.least, share), num_looks=state.num_looks + 1)
        if "loss" not in view or not look.run.is_alone or state.is_warned:
            return state, ()
        is_bad = run.num_losses >= self.least_steps and run.trivial > 0 and self._is_bad(state, look)
        if is_bad or self._is_far(state, run):
            began = min(run.loss_first, run.loss_start)
            message = (
                f"the loss began at {amount(began / run.trivial)} times the cost of guessing "
                f"({amount(run.trivial)}), and is still above it after {run.num_losses:,} steps"
            )
            evidence = look.evidence("loss", run.loss, run.trivial)
            return state._replace(is_warned=True), (Sighting(Severity.WARNING, message, evidence=(evidence,), since=0),)
        if state.is_told:
            return state, ()
        if len(state.first) < 20 and math.isfinite(run.loss):
            state = state._replace(first=(*state.first, run.loss))
        if len(state.first) < 20 or not state.first[0] > 0:
            return state, ()
        trivial = _trivial(look)
        if trivial > 0 and state.first[0] > self.factor * trivial:
            what, expected = "the cost of guessing", trivial
        elif 0 < (later := middle(state.first[10:])) * self.drop < state.first[0]:
            what, expected = "the loss ten steps later", later
        else:
            return state, ()
        times = amount(state.first[0] / expected)
        message = f"the first loss, {amount(state.first[0])}, is {times} times {what} ({amount(expected)})"
        evidence = look.evidence("loss", state.first[0], expected)
        return state._replace(is_told=True), (Sighting(Severity.INFO, message, evidence=(evidence,), since=0),)

    def _is_far(self, state: InitialLossHighState, run: RunSummary) -> bool:
        """Whether the answers began far above guessing, by their own targets, and have stayed above it."""
        if not run.trivial > 0:
            return False
        if state.start > self.far and state.least > self.factor:
            return state.num_looks > 1 or not math.isfinite(run.loss)
        is_worse = state.start > self.factor and state.least > self.worse
        return is_worse and state.num_looks >= self.looks and run.num_losses >= self.least_steps

    def _is_bad(self, state: InitialLossHighState, look: Look) -> bool:
        run = look.run
        limit = self.factor * run.trivial
        start = run.loss_start / run.trivial
        summed = any(0.5 * size < start < 2 * size for size in state.sizes)
        return (
            min(run.loss_first, run.loss_best) > limit and not run.val_loss < limit and not summed and bool(state.sizes)
        )


def _trivial(look: Look) -> float:
    """What ignoring the input costs: in nats for classes, as a mean square for numbers; NaN where it is not known."""
    if look.run.trivial > 0:
        return look.run.trivial
    mean, std = look.view.value("label/mean"), look.view.value("label/std")
    return mean**2 + std**2
