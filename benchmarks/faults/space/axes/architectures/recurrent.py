"""Recurrent networks over sequences of vectors or tokens."""

from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import Tensor, nn

TAKES = frozenset({"series", "tokens"})


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], model: Model, shape: Shape) -> None:
        super().__init__()
        self.embed = nn.Embedding(shape.symbols, model.width) if shape.symbols else nn.Identity()
        self.rnn = kind(model.width if shape.symbols else shape.dim, model.width, batch_first=True)
        self.drop = nn.Dropout(model.dropout)
        self.head = nn.Linear(model.width, shape.outputs)
        self.each = shape.each

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(self.embed(x))
        return self.head(self.drop(states if self.each else states[:, -1]))


def build_rnn(model: Model, shape: Shape) -> nn.Module:
    """Plain, with tanh."""
    return Recurrent(nn.RNN, model, shape)


def build_lstm(model: Model, shape: Shape) -> nn.Module:
    """Long short-term memory."""
    return Recurrent(nn.LSTM, model, shape)


def build_gru(model: Model, shape: Shape) -> nn.Module:
    """Gated recurrent units."""
    return Recurrent(nn.GRU, model, shape)
