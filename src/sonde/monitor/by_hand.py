"""A stand-in for the optimiser where a script changes its weights itself."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, final

from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle


@final
class UpdatedByHand(Optimizer):
    """The parameters that a script updates by hand, watched as if they were an optimiser's.

    A loop such as `for p in model.parameters(): p.data.add_(p.grad, alpha=-lr)` calls no hook. Who sees from outside
    that gradients are there, and later that the weights have changed, calls the hooks of a step here: `announce`, then
    `conclude`. In between lies whatever the script does, so the time in between is not that of a step.

    Args:
        parameters: Those that the script trains.

    Example:
        >>> import torch
        >>> seen = []
        >>> by_hand = UpdatedByHand([torch.zeros(2)])
        >>> handle = by_hand.register_step_post_hook(lambda one, args, kwargs: seen.append(one.rate))
        >>> by_hand.announce()
        >>> by_hand.conclude(rate=0.1)
        >>> seen
        [0.1]
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._before: OrderedDict[int, Any] = OrderedDict()
        self._after: OrderedDict[int, Any] = OrderedDict()
        self.has_new_gradients = False
        """Whether the last update was made with other gradients than were announced, which are there to be read."""
        super().__init__(parameters, {"lr": None})

    @property
    def rate(self) -> float | None:
        """The learning rate of the last update; None where it is not known."""
        rate: float | None = self.param_groups[0]["lr"]
        return rate

    def register_step_pre_hook(self, hook: Any) -> RemovableHandle:
        """Have a hook called by `announce`."""
        return _registered(self._before, hook)

    def register_step_post_hook(self, hook: Any) -> RemovableHandle:
        """Have a hook called by `conclude`."""
        return _registered(self._after, hook)

    def announce(self) -> None:
        """Gradients are there, and the weights may change. Of several calls before `conclude` the last counts."""
        self.param_groups[0]["lr"] = None
        for hook in list(self._before.values()):
            hook(self, (self,), {})

    def conclude(self, *, rate: float | None, has_new_gradients: bool = False) -> None:
        """The weights have changed.

        Args:
            rate: By how much of the gradients; None where that is not known.
            has_new_gradients: Whether the gradients that are there are other ones than at the last `announce` or clip,
                and the weights were changed by these.
        """
        self.param_groups[0]["lr"], self.has_new_gradients = rate, has_new_gradients
        for hook in list(self._after.values()):
            hook(self, (self,), {})


def _registered(hooks: "OrderedDict[int, Any]", hook: Any) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
