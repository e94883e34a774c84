"""The shapes of what modules are given and give, as they are called first."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from torch import Tensor, nn

from sonde.core.model_table import Passed, Shape
from sonde.core.records import Float64
from sonde.probes.events import Events
from sonde.probes.facts import judged_later
from sonde.probes.hooks import Hooks, first_tensor
from sonde.probes.model_table import module_names
from sonde.probes.probe import Reading


@final
class ModuleShapes:
    """Notes the shapes of the first tensors that go into each module and come out of it, at its first call.

    It listens until the first step is over. No value is looked at. Of modules that were not called by then, and of
    those inside a compiled region, nothing is known.

    Args:
        models: By name.
        tell: Given the shapes by the names of the modules, in the background.
    """

    def __init__(self, models: Mapping[str, nn.Module], tell: Callable[[Mapping[str, Passed]], None]) -> None:
        self._tell = tell
        self._waiting = {id(module): (module, name) for module, name in module_names(models)}
        """Modules that were not called yet; they are held, so that no other gets the `id` of one."""
        self._hooks = Hooks()
        self._seen: dict[str, Passed] = {}

    def listen(self, _events: Events) -> None:
        """Be told of calls from now on."""
        if self._waiting:
            self._hooks.after_all(self._called)

    def _called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if id(module) in self._waiting:
            _, name = self._waiting.pop(id(module))
            self._seen[name] = Passed(input=_shape((args, kwargs)), output=_shape(output))

    def collect(self) -> Sequence[Reading]:
        """A step is over; after the first nothing is hooked any more."""
        if self._hooks.is_idle:
            return ()
        self._waiting = {}
        self._hooks.release()
        return [judged_later(self._report)] if self._seen else ()

    def _report(self, _numbers: Float64) -> None:
        seen, self._seen = self._seen, {}
        self._tell(seen)

    def not_measured(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Let go of everything, also before the first step."""
        self._waiting = {}
        self._hooks.release()


def _shape(value: Any) -> Shape | None:
    """Of the first tensor in it; None where there is none, or one without plain sizes."""
    tensor = first_tensor(value, _any)
    if tensor is None or tensor.is_nested:
        return None
    sizes: Iterable[Any] = tensor.shape
    return tuple(sizes) if all(type(size) is int for size in sizes) else None


def _any(_tensor: Tensor) -> bool:
    return True
