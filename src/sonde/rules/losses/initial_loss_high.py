"""LOS008 initial-loss-high."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.picture import Picture
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When
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
    """The first losses are far above what guessing would give.

    What it detects:
        The first loss is more than `factor` times what a predictor gets that ignores its input (entropy of the labels,
        or, of floating-point targets, their mean square), or more than `drop` times the median of losses 11 to 20. Said
        once, as information. It is a warning where the loss is still worse than `factor` times guessing after
        `least_steps` steps, unless it starts at about the batch's size (or number of tokens) times guessing, as a
        summed loss does. Where what guessing costs is read from the loss's own graph (`loss/relative`), units and sums
        do not matter, and targets far from zero are no bad start (`loss/zeros`): then it is a warning at the second
        look or where the loss leaves all finite numbers, if the first answers cost more than `far` times guessing and
        the later ones more than `factor` times; and after `least_steps` losses, if the first cost more than `factor`
        times guessing and none of at least `looks` later ones came nearer than `worse` times.

    Why it matters:
        A network should begin by guessing. One that begins confidently wrong has output weights or inputs that are too
        large; a loss that is a multiple of the guess by the size of the batch is summed where a mean was meant.

    Evidence:
        The first `loss` against `label/entropy` or the losses right after.

    What to do:
        Scale the last layer's initial weights down, normalise inputs, look at the loss's `reduction`.

    When it is wrong:
        Losses with further terms (penalties, several heads) have no such reference. A loss summed on purpose is fine
        with a rate that allows for it.

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
            For("and stays above guessing for long", when=When.ALARM),
        ),
        Cause.UNNORMALISED_INPUTS: For("the first losses are far above guessing"),
        Cause.WRONG_LOSS_REDUCTION: (
            For("the first loss is a multiple of guessing"),
            Against("measured by its own targets, where a sum changes nothing", when=When.ALARM),
        ),
        Cause.BATCH_TOO_SMALL: For(),
        Cause.LR_TOO_HIGH: Against("it was bad before the first step"),
        Cause.LR_SPIKE: Against("it was bad from the first step"),
        Cause.WARMUP_TOO_SHORT: Against("the start itself was bad"),
        Cause.TRAIN_EVAL_MISMATCH: Against("the first losses were in other units already"),
        Cause.EXPLODING_GRADIENTS: Against("the start itself was bad", when=When.ALARM),
        Cause.SCHEDULE_MISAPPLIED: Against("the start itself was bad", when=When.ALARM),
        Cause.CLIP_TOO_AGGRESSIVE: Against("gradients are large because the start was bad", when=When.ALARM),
        Cause.NO_LEARNABLE_SIGNAL: Against("the start itself was bad", when=When.ALARM),
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
        scene, picture = look.scene, look.picture
        sizes = [scene.value(tag) for tag in ("batch/size", "batch/samples", "batch/tokens") if tag in scene]
        if sizes:
            state = state._replace(sizes=tuple(sizes))
        share = scene.value("loss/relative")
        if math.isfinite(share):
            zeros = scene.value("loss/zeros") / scene.value("loss/trivial")  # over guessing; NaN where not measured
            start = share / (zeros if zeros > 1 else 1.0) if not state.num_looks else state.start
            state = state._replace(start=start, least=min(state.least, share), num_looks=state.num_looks + 1)
        if "loss" not in scene or not look.picture.is_alone or state.is_warned:
            return state, ()
        is_bad = picture.num_losses >= self.least_steps and picture.trivial > 0 and self._is_bad(state, look)
        if is_bad or self._is_far(state, picture):
            message = (
                f"the loss began at {picture.loss_start / picture.trivial:.3g} times what guessing costs "
                f"({picture.trivial:.3g}), and is still worse than that after {picture.num_losses} steps"
            )
            evidence = Evidence(tag="loss", step=picture.step, value=picture.loss, expected=picture.trivial)
            return state._replace(is_warned=True), (Sighting(Severity.WARNING, message, evidence=(evidence,), since=0),)
        if state.is_told:
            return state, ()
        if len(state.first) < 20 and math.isfinite(picture.loss):
            state = state._replace(first=(*state.first, picture.loss))
        if len(state.first) < 20 or not state.first[0] > 0:
            return state, ()
        trivial = _trivial(look)
        if trivial > 0 and state.first[0] > self.factor * trivial:
            what, expected = "what guessing gives", trivial
        elif 0 < (later := middle(state.first[10:])) * self.drop < state.first[0]:
            what, expected = "the losses ten steps later", later
        else:
            return state, ()
        message = f"first loss {state.first[0]:.4g}, {state.first[0] / expected:.3g} times {what} ({expected:.4g})"
        evidence = Evidence(tag="loss", step=picture.step, value=state.first[0], expected=expected)
        return state._replace(is_told=True), (Sighting(Severity.INFO, message, evidence=(evidence,), since=0),)

    def _is_far(self, state: InitialLossHighState, picture: Picture) -> bool:
        """Whether the answers began far above guessing, by their own targets, and have stayed above it."""
        if not picture.trivial > 0:
            return False
        if state.start > self.far and state.least > self.factor:
            return state.num_looks > 1 or not math.isfinite(picture.loss)
        is_worse = state.start > self.factor and state.least > self.worse
        return is_worse and state.num_looks >= self.looks and picture.num_losses >= self.least_steps

    def _is_bad(self, state: InitialLossHighState, look: Look) -> bool:
        picture = look.picture
        limit = self.factor * picture.trivial
        start = picture.loss_start / picture.trivial
        summed = any(0.5 * size < start < 2 * size for size in state.sizes)
        return picture.loss_best > limit and not picture.val_loss < limit and not summed and bool(state.sizes)


def _trivial(look: Look) -> float:
    """What ignoring the input costs: in nats for classes, as a mean square for numbers; NaN where it is not known."""
    if look.picture.trivial > 0:
        return look.picture.trivial
    mean, std = look.scene.value("label/mean"), look.scene.value("label/std")
    return mean**2 + std**2
