"""What has its turn in an iteration of the training loop."""

from collections.abc import Sequence

from sonde.core.cadences import Burst, Every, Rotation, stretched
from sonde.monitor.cadences import Cadences


class Schedule:
    """The cadences as they are kept: stretched by the budget, overruled by a burst.

    Args:
        cadences: The settings.
    """

    def __init__(self, cadences: Cadences) -> None:
        self.cadences = cadences
        self.iteration = 0
        """Iterations in which an optimiser stepped, as far as the host knows; the present one's number."""
        self._stretch = 1.0
        self._burst = Burst(0, 0)
        # Asked several times a step, and the same for hundreds of steps.
        self._beats: dict[str, Every] = {}
        self._rotations: dict[tuple[str, int], Rotation] = {}

    @property
    def stretch(self) -> float:
        """How much rarer than the settings say."""
        return self._stretch

    @stretch.setter
    def stretch(self, factor: float) -> None:
        if factor != self._stretch:
            self._stretch = factor
            self._beats.clear()
            self._rotations.clear()

    def burst(self, num_steps: int) -> None:
        """Measure everything at each of the next steps, from the next iteration on."""
        self._burst = Burst(self.iteration + 1, num_steps)

    def due(self, family: str, ahead: int = 0) -> bool:
        """Whether a family (a field of `Cadences`) has its turn now, or so many iterations ahead."""
        step = self.iteration + ahead
        return self._beat(family).due(step) or self._burst.due(step)

    def slots(self, family: str, num_slots: int) -> Sequence[int]:
        """Which of a rotating family's slots have their turn now."""
        if self._burst.due(self.iteration):
            return range(num_slots)
        rotation = self._rotations.get((family, num_slots))
        if rotation is None:
            rotation = self._rotations[family, num_slots] = Rotation(self._beat(family), num_slots)
        return rotation.due(self.iteration)

    def _beat(self, family: str) -> Every:
        beat = self._beats.get(family)
        if beat is None:
            beat = self._beats[family] = stretched(getattr(self.cadences, family), self._stretch)
        return beat
