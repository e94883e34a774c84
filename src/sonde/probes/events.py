"""What happens in a watched training, and who is told of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from sonde.probes.seams import Clip, ScalerStep


@final
class Events:
    """A list of listeners for each thing that happens, all on the training thread, in the order in which they came.

    A listener that fails does not keep the others from being told.

    Args:
        failed: Told about a fault of a listener.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self.moment: list[Callable[[str], None]] = []
        """A moment of the iteration: `begin`, `optimizer`, `clip` and `monitor` (we work), each of the last three with
        its end, such as `optimizer-done`."""
        self.optimizer_enters: list[Callable[[Optimizer], None]] = []
        """An optimiser is about to make its step; its gradients may be computed inside of that."""
        self.gradients: list[Callable[[Optimizer], None]] = []
        """The gradients of an optimiser are as it uses them: before its step, or, where a closure computes them,
        after it."""
        self.starts_over: list[Callable[[Optimizer], None]] = []
        """What was read of an optimiser's gradients in this iteration does not count: there will be others."""
        self.rates: list[Callable[[Optimizer], None]] = []
        """The learning rates of an optimiser are known only now, after its step."""
        self.optimizer_left: list[Callable[[Optimizer], None]] = []
        """It has made its step."""
        self.optimizer_loaded: list[Callable[[Optimizer], None]] = []
        """Its state was loaded."""
        self.clip: list[Callable[[Clip], None]] = []
        """Torch is about to clip gradients, or has."""
        self.scaler_step: list[Callable[[ScalerStep], None]] = []
        """A gradient scaler was asked for a step, which it has made or withheld."""
        self.batch: list[Callable[[Any, Any], None]] = []
        """A batch is about to be used, with its targets where they can be told."""
        self.waited: list[Callable[[float], None]] = []
        """The iteration has waited for data until now, for so many seconds."""
        self.loss: list[Callable[[Any], None]] = []
        """The loss of an iteration or micro-step that is about to be closed."""
        self.again: list[Callable[[Callable[[], Any]], None]] = []
        """How the loss of such an iteration can be computed once more, where somebody says that."""
        self.boundary: list[Callable[[], None]] = []
        """The data or an epoch has come to an end: what follows before the next step may be an evaluation."""
        self.evaluated: list[Callable[[], None]] = []
        """An evaluation was reported."""

    def mark(self, moment: str) -> None:
        """A moment of the iteration has come."""
        if self.moment:
            self.tell(self.moment, moment)

    def tell(self, listeners: list[Callable[..., None]], *what: Any) -> None:
        """Tell the listeners of one of the lists."""
        for listener in listeners:
            try:  # a `with` for each costs more than most listeners
                listener(*what)
            except Exception as error:
                self._failed(error)
