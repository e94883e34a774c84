"""Whether somebody else's training moves the loss: the other player of a game of whom only one is watched."""

import weakref
from collections.abc import Mapping
from typing import Any, final

from torch import Tensor, nn
from torch.optim import Optimizer

from sonde.probes.facts import Facts
from sonde.probes.graph_nodes import nodes
from sonde.probes.parameters import of_groups

_MOST_NODES = 1024
_SHARDED = ("FullyShardedDataParallel", "FSDPModule")


@final
class Players:
    """Reads from the graph of the first loss which parameters it depends on, and whether others train some of them.

    - `other-player`: the loss depends on parameters (`num` of them) that are in no watched model and no watched
      optimiser, and that somebody changes between one loss and the next: a discriminator that judges the watched
      generator, a critic that judges the watched policy. Such a loss rises when the other learns.

    Of a graph the 1,024 nodes nearest to the loss are read, once, names and references only. A network that the loss
    passes through and that nobody trains (a perceptual loss, a teacher) is no player: that parameters change is told by
    torch's version counter, without reading them. Models whose parameters FSDP holds are left out: what their graphs
    end in are copies.
    """

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer], facts: Facts) -> None:
        self._models, self._optimizers, self._facts = models, optimizers, facts
        self._others: list[tuple[weakref.ref[Tensor], int]] | None = None
        self._done = False

    def loss(self, loss: Any) -> None:
        """A loss of the iterations that are looked at, as it was given."""
        if self._done or not isinstance(loss, Tensor) or loss.grad_fn is None:
            return
        if self._others is None:
            self._others = [(weakref.ref(p), p._version) for p in self._found(loss)]
            self._done = not self._others
            return
        changed = [p for p, version in self._others if (now := p()) is not None and now._version != version]
        if changed:
            self._done = True
            self._facts.say("other-player", num=len(changed))

    def finish(self) -> None:
        """No more iterations are looked at in detail."""
        self._done = True

    def _found(self, loss: Tensor) -> list[nn.Parameter]:
        """The parameters of others near the loss."""
        modules = [module for model in self._models.values() for module in model.modules()]
        if any(base.__name__ in _SHARDED for module in modules for base in type(module).__mro__):
            return []
        mine = {id(p) for model in self._models.values() for p in model.parameters()}
        mine |= {id(p) for optimizer in self._optimizers.values() for p in of_groups(optimizer)}
        leaves = [getattr(node, "variable", None) for node in nodes(loss, _MOST_NODES)]
        return [leaf for leaf in leaves if isinstance(leaf, nn.Parameter) and id(leaf) not in mine]
