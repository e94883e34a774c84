"""Networks over sets and graphs: elements are treated alike, and then summed up."""

import itertools

from benchmarks.faults.space.axes.architectures.parts import activation, dense
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import Tensor, nn

TAKES_SET = frozenset({"set"})
TAKES_GRAPH = frozenset({"graph"})


class DeepSet(nn.Module):
    def __init__(self, model: Model, shape: Shape) -> None:
        super().__init__()
        self.each = dense(model, [shape.dim, *[model.width] * model.depth])
        self.all = dense(model, [model.width, model.width, shape.outputs])

    def forward(self, x: Tensor) -> Tensor:
        return self.all(self.each(x).mean(1))


class GraphNet(nn.Module):
    """Nodes take in the mean of their neighbours; an example is [nodes, features + nodes], adjacency last."""

    def __init__(self, model: Model, shape: Shape) -> None:
        super().__init__()
        self.dim = shape.dim
        sizes = [shape.dim, *[model.width] * model.depth]
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.others = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(sizes))
        self.act = activation(model)
        self.head = nn.Linear(model.width, shape.outputs)

    def forward(self, graph: Tensor) -> Tensor:
        x, adjacency = graph[..., : self.dim], graph[..., self.dim :]
        adjacency = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1)
        for own, others in zip(self.own, self.others, strict=True):
            x = self.act(own(x) + others(adjacency.to(x.dtype) @ x))
        return self.head(x.mean(1))


def build_set(model: Model, shape: Shape) -> nn.Module:
    """A network for each element, one for their mean."""
    return DeepSet(model, shape)


def build_graph(model: Model, shape: Shape) -> nn.Module:
    """`depth` rounds of messages."""
    return GraphNet(model, shape)
