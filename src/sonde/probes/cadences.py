"""How often each family is measured: the one table of defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from sonde.core.cadences import Every, every

# In the first iteration nothing is hooked (see `ProbeSet.arm`).
_FROM_SECOND = Every(100, offset=1)
_TENTH = Every(10, offset=1)
_RARE_UPDATES = Every(64, offset=5)  # copies of all weights at once take as much memory as the weights
_EARLY = frozenset({"blocks", "batches"})
_EARLY_INTERVAL = 25
# However little time there is, each family is looked at once in so many steps: what is not looked at cannot be found.
_LONGEST_STEPS = {
    "layers": 20,
    "inputs": 20,
    "trivial_loss": 100,
    "process": 50,  # some 10 µs a look, and a leak is a line through a dozen of them
    "updates": 100,
    "rotating": 100,
    "histograms": 1000,
    "spectra": 10_000,
}
_LONGEST_OTHERWISE = 500
_LONGEST_EARLY = 50  # of blocks in the first steps: units that are dead from the start are judged after four looks


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadences:
    """When what is measured; the loss and the learning rate are at every step.

    So are global norms. The others are made rarer where they take more than the budget, up to the interval that
    `longest` says.

    Where a family rotates, each of its tensors or blocks has its turn once an interval, spread evenly over the steps.

    Args:
        layers: Statistics of every gradient and weight.
        cosines: Cosines between gradients, and between updates, of steps that follow each other.
        updates: True updates of all tensors at one step, and of the whole.
        rotating: Percentiles, second moments, and true updates where that is more often than `updates`; rotates over
            tensors.
        histograms: Histograms that are kept whole; rotates over tensors.
        blocks: Activations, gains and attention; rotates over blocks.
        process: Memory of the process and of the GPUs, phases of a step.
        resources: Bytes of parameters, gradients and state; what the GPUs say of themselves.
        inputs: What the model is given: sizes, non-finite values, scale; its targets.
        trivial_loss: What the best constant answer would cost on the targets of the batch.
        batches: How the features of its inputs differ; its output logits.
        spectra: Singular values of weights; rotates over matrices.
        early_steps: For so many steps from the first on, blocks and batches have their turn every 25 steps at least:
            most that is wrong with a model is wrong from the beginning.
    """

    layers: Every = every(1)
    cosines: Every = every(1)
    updates: Every = _RARE_UPDATES
    rotating: Every = every(8)
    histograms: Every = every(100)
    blocks: Every = _FROM_SECOND
    process: Every = _FROM_SECOND
    resources: Every = _FROM_SECOND
    inputs: Every = _FROM_SECOND
    trivial_loss: Every = _FROM_SECOND
    batches: Every = _FROM_SECOND
    spectra: Every = every(1000)
    early_steps: int = 0

    @property
    def updates_rotate(self) -> bool:
        """Whether each tensor's update is measured more often than those of all at one step."""
        return self.rotating.interval_steps < self.updates.interval_steps

    def num_update_slots(self, *, on_gpu: bool) -> int:
        """In how many parts updates are measured; on a GPU each part has memory of its own for its copies."""
        return self.rotating.interval_steps if on_gpu or self.updates_rotate else 1

    def longest(self, family: str, *, is_early: bool) -> int:
        """The steps between two measurements beyond which the budget does not stretch a family."""
        is_close = is_early and family in _EARLY
        return _LONGEST_EARLY if is_close else _LONGEST_STEPS.get(family, _LONGEST_OTHERWISE)

    def early(self, family: str) -> Every:
        """A family's cadence in the first steps."""
        usual: Every = getattr(self, family)
        if family not in _EARLY or usual.interval_steps <= _EARLY_INTERVAL:
            return usual
        return Every(_EARLY_INTERVAL, usual.offset % _EARLY_INTERVAL)


# On a GPU hooks are rare: each costs a launch-bound step dearly, and a module cannot be made a CUDA graph with one.
ON_GPU = Cadences()
ON_CPU = Cadences(
    layers=every(10),
    cosines=every(100),
    updates=Every(10, offset=5),  # not at the steps of `layers`: no step should pay for both
    rotating=every(10),
    process=_TENTH,
    inputs=every(1),
    trivial_loss=_TENTH,
    early_steps=200,
)


def intervals_of(cadences: Cadences) -> dict[str, int]:
    """The steps between two measurements, by family, and `early_steps`."""
    found = {item.name: getattr(cadences, item.name) for item in fields(cadences)}
    return {name: each.interval_steps if isinstance(each, Every) else each for name, each in found.items()}


def with_intervals(cadences: Cadences, intervals: Mapping[str, int]) -> Cadences:
    """The cadences with these steps between two measurements, by family; `early_steps` is a number of steps.

    Example:
        >>> with_intervals(ON_CPU, {"blocks": 50, "early_steps": 0}).blocks
        Every(interval_steps=50, offset=1)
    """
    changed: dict[str, Every | int] = {}
    for family, steps in intervals.items():
        usual = getattr(cadences, family)
        changed[family] = Every(steps, usual.offset % steps) if isinstance(usual, Every) else steps
    return replace(cadences, **changed)  # type: ignore[arg-type]  # by the types of the fields, as above
