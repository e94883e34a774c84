"""Which of our times a step of the training pays for."""

from collections import defaultdict
from typing import final

_DECAY = 0.98
_IDLE = 0.05
_NEWEST = 0.2


@final
class Charges:
    """What each part of our work costs a step, out of host times, device times and looks at the device.

    The training waits for whichever of host and device is behind. A part for which the device waits in more than 5% of
    the steps pays its host time. One that is launched while the device is still busy with what was before hides behind
    that, and pays the time that its work takes on the device, as it was last measured. Where nobody looks at a part
    (hooks in the middle of a forward pass), it hides where another does. The sum over the parts is what the step pays.

    Example:
        >>> charges = Charges()
        >>> charges.looked("pre", idle=False)
        >>> charges.on_device("pre", 2e-4)
        >>> charges.on_host("pre", 7e-4)
        >>> charges.on_host("post", 3e-4)
        >>> round(charges.close(), 6)
        0.0005
    """

    def __init__(self) -> None:
        self._host: defaultdict[str, float] = defaultdict(float)
        self._idle: dict[str, float] = {}
        self._alike: dict[str, str] = {}
        self._device: dict[str, float] = {}
        self.host_s = 0.0
        """Of all parts in the last step."""

    @property
    def device_s(self) -> float:
        """Of all parts, as last measured."""
        return sum(self._device.values())

    def looked(self, part: str, *, idle: bool) -> None:
        """A part was launched, and the device has been out of work in between or not."""
        self._idle[part] = _DECAY * self._idle.get(part, float(idle)) + (1 - _DECAY) * idle

    def on_host(self, part: str, seconds: float, *, like: str | None = None) -> None:
        """A part kept the training thread for so long; it hides where the part `like` does, if that is given."""
        self._host[part] += seconds
        if like is not None:
            self._alike[part] = like

    def on_device(self, part: str, seconds: float) -> None:
        """A part kept the device busy for so long in some step; it was busy before."""
        usual = self._device.get(part, seconds)
        self._device[part] = usual + _NEWEST * (seconds - usual)

    def close(self) -> float:
        """A step is over: the seconds that it pays, for the parts that there were."""
        self.host_s = sum(self._host.values())
        paid = sum(s if self._is_exposed(part) else self._device.get(part, 0.0) for part, s in self._host.items())
        self._host.clear()
        return paid

    def _is_exposed(self, part: str) -> bool:
        return self._idle.get(self._alike.get(part, part), 1.0) > _IDLE
