"""DAT008 labels-in-order."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.core.quantities import share as percent
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting

_MOST = 128


class LabelsInOrderState(NamedTuple):
    """Of the latest batches: the entropy of their classes, or the mean and the deviation of their numbers."""

    entropies: tuple[float, ...] = ()
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()
    size: float = float("nan")
    costs: tuple[tuple[float, float], ...] = ()
    """What the best constant and what zeros would cost, at the looks at the loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelsInOrder:
    """Batches come in the order of their targets.

    What it detects:
        - It is judged over the last `batches` batches whose targets were measured, each of `size` examples or more.
        - Classes: at least `share` of the batches hold one class only, and the others mix classes (a mean entropy above
          `mixed` nats), as at the border between two classes of sorted data.
        - Numbers: the variance of the batches' means is more than `apart` times the mean variance within batches, and
          neighbouring batches are alike (correlation above `alike`).
        - Targets that only the loss's own graph shows are judged over `looks` measurements of it: of numbers the spread
          of the batches' centres, √(`loss/zeros` − `loss/trivial`), has a variance above `loss/trivial`; of classes as
          above, in batches of 16 or more.
        - Always a warning. Nothing is said in a training with several optimisers, or of a model that makes its own
          data.

    Why it matters:
        Each step pulls towards the targets of the moment, and the next steps undo it. Batch statistics are those of one
        class. The model ends where the data end.

    Evidence:
        `label/entropy` and `label/num_distinct`, or `label/mean` against `label/std`, or `loss/trivial`.

    What to do:
        - Shuffle: `DataLoader(..., shuffle=True)`.
        - If the data are a stream, shuffle within a buffer of many batches.
        - Shuffle sorted data once, on disk.

    When it is wrong:
        - Targets of a stream may move slowly by nature, as in time series that are read in order.
        - A batch may be one long document or one scene.
        - Lessons may come class by class on purpose.

    References:
        Bottou, Curiously fast convergence of some stochastic gradient descent algorithms, 2009 (order and shuffling).
    """

    code: ClassVar[str] = "DAT008"
    name: ClassVar[str] = "labels-in-order"
    needs: ClassVar[tuple[str, ...]] = ("label/num_distinct", "label/std", "loss/trivial")
    reads: ClassVar[tuple[str, ...]] = ("batch/size", "label/entropy", "label/mean", "label/std", "loss/trivial")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DATA_NOT_SHUFFLED: For("targets come in order"),
        Cause.DATA_DRIFT: Against("the order of the data explains the drift"),
        Cause.LR_TOO_HIGH: Against("the order of the data explains the rises of the loss"),
        Cause.EXPLODING_GRADIENTS: Against(),
        Cause.NO_LEARNABLE_SIGNAL: Against("targets are not constant, they come in order"),
    }
    quiet_steps: ClassVar[int] = 300

    batches: int = 24
    size: int = 8
    share: float = 0.6
    mixed: float = 0.35
    apart: float = 4.0
    alike: float = 0.5
    looks: int = 8

    def init(self) -> LabelsInOrderState:
        """Before the first step."""
        return LabelsInOrderState()

    def step(self, state: LabelsInOrderState, look: Look) -> tuple[LabelsInOrderState, Sequence[Sighting]]:
        """Look at the targets of one more batch, where they were measured."""
        view = look.view
        if "batch/size" in view and view.value("batch/size") != state.size:
            state = state._replace(size=view.value("batch/size"))
        if math.isfinite(trivial := view.value("loss/trivial")):
            state = state._replace(costs=(*state.costs, (trivial, view.value("loss/zeros")))[-_MOST:])
        entropy, mean, deviation = (view.value(f"label/{what}") for what in ("entropy", "mean", "std"))
        if math.isfinite(entropy):
            state = state._replace(entropies=(*state.entropies, entropy)[-_MOST:])
        elif math.isfinite(mean) and math.isfinite(deviation):
            means, deviations = (*state.means, mean)[-_MOST:], (*state.deviations, deviation)[-_MOST:]
            state = state._replace(means=means, deviations=deviations)
        elif not math.isfinite(trivial):
            return state, ()
        if not (state.size >= self.size and look.run.is_alone) or look.run.acts:
            return state, ()
        found = self._of_classes(state, look) or self._of_numbers(state, look) or self._of_costs(state, look)
        return state, () if found is None else (found,)

    def _of_classes(self, state: LabelsInOrderState, look: Look) -> Sighting | None:
        if len(state.entropies) < self.batches:
            return None
        entropies = np.array(state.entropies[-2 * self.batches :])
        pure, mixed = np.mean(entropies == 0), entropies[entropies > 0]
        if not (self.share <= pure < 1 and mixed.mean() > self.mixed):
            return None
        message = (
            f"{percent(float(pure))} of the last {len(entropies)} batches hold one class only, others hold several"
        )
        evidence = Evidence(tag="label/entropy", step=look.view.step, value=state.entropies[-1])
        return Sighting(Severity.WARNING, message, evidence=(evidence,))

    def _of_costs(self, state: LabelsInOrderState, look: Look) -> Sighting | None:
        """Targets that come by no loader, as far as the loss shows them."""
        if len(state.costs) < self.looks or state.entropies or state.means:
            return None
        trivial, zeros = np.array(state.costs).T
        if np.ptp(zeros) <= 1e-6 * zeros.max():  # the logarithm of the number of classes
            pure, mixed = np.mean(trivial == 0), trivial[trivial > 0]
            in_order = state.size >= 16 and self.share <= pure < 1 and mixed.mean() > self.mixed
        else:
            in_order = np.sqrt(np.maximum(zeros - trivial, 0)).var() > trivial.mean()
        if not in_order:
            return None
        message = (
            f"targets are alike within a batch and differ between batches: over {len(zeros)} batches, one constant "
            f"answer to each costs {amount(float(trivial.mean()))}, answers of zero {amount(float(zeros.mean()))}"
        )
        evidence = Evidence(tag="loss/trivial", step=look.view.step, value=float(trivial[-1]))
        return Sighting(Severity.WARNING, message, evidence=(evidence,))

    def _of_numbers(self, state: LabelsInOrderState, look: Look) -> Sighting | None:
        if len(state.means) < self.batches:
            return None
        means, within = np.array(state.means), float(np.mean(np.square(state.deviations)))
        centred = means - means.mean()
        between = float(np.mean(centred**2))
        if not (
            between > self.apart * within and float(centred[1:] @ centred[:-1]) > self.alike * between * len(means)
        ):
            return None
        message = (
            f"targets differ by {amount(math.sqrt(between))} from batch to batch and by {amount(math.sqrt(within))} "
            "within a batch: they come in order"
        )
        evidence = Evidence(tag="label/mean", step=look.view.step, value=state.means[-1])
        return Sighting(Severity.WARNING, message, evidence=(evidence,))
