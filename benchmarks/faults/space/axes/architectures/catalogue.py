"""All architectures by name, and the settings each is drawn with."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.faults.space.axes.architectures import (
    cnn,
    embedding,
    mixture,
    mlp,
    recurrent,
    residual,
    resnet,
    sets,
    siamese,
    transformer,
)
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model
from torch import nn


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How a model is built and drawn.

    Args:
        build: From the recipe's part and the shape of an example.
        takes: Kinds of shape.
        widths: To choose from.
        depths: To choose from.
        activations: To choose from.
        norms: To choose from.
        rate: A good one for SGD with momentum 0.9.
        adaptive_rate: A good one for Adam.
        adaptive_only: Whether SGD is no good choice.
        warmup: Whether it is trained with a warm-up.
    """

    build: Callable[[Model, Shape], nn.Module]
    takes: frozenset[str]
    widths: tuple[int, ...] = (32, 48, 64)
    depths: tuple[int, ...] = (1, 2, 3)
    activations: tuple[str, ...] = ("relu", "gelu", "tanh", "silu")
    norms: tuple[str, ...] = ("none",)
    rate: float = 0.05
    adaptive_rate: float = 3e-3
    adaptive_only: bool = False
    warmup: bool = False


_DENSE = ("none", "none", "layer", "batch")
_TRANSFORMER = {"widths": (24, 32), "depths": (1, 2), "activations": ("gelu", "relu"), "adaptive_only": True,
                "warmup": True, "norms": ("layer",)}  # fmt: skip
_RECURRENT = {"widths": (24, 32, 48), "depths": (1,), "activations": ("tanh",), "adaptive_only": True}

ARCHITECTURES: dict[str, Architecture] = {
    "mlp": Architecture(build=mlp.build, takes=mlp.TAKES, norms=_DENSE),
    "residual": Architecture(build=residual.build, takes=residual.TAKES, norms=("none", "layer"), rate=0.02),
    "mixture": Architecture(build=mixture.build, takes=mixture.TAKES, depths=(1,)),
    "cnn": Architecture(build=cnn.build, takes=cnn.TAKES, widths=(32, 48), depths=(2, 3)),
    "cnn-norm": Architecture(build=cnn.build, takes=cnn.TAKES, widths=(32, 48), depths=(2, 3), norms=("batch",)),
    "resnet": Architecture(
        build=resnet.build, takes=resnet.TAKES, widths=(32, 48), depths=(1, 2), norms=("batch",), activations=("relu",)
    ),
    "rnn": Architecture(build=recurrent.build_rnn, takes=recurrent.TAKES, **_RECURRENT),
    "lstm": Architecture(build=recurrent.build_lstm, takes=recurrent.TAKES, **_RECURRENT),
    "gru": Architecture(build=recurrent.build_gru, takes=recurrent.TAKES, **_RECURRENT),
    "encoder": Architecture(build=transformer.build_encoder, takes=transformer.TAKES_ENCODER, **_TRANSFORMER),
    "decoder": Architecture(build=transformer.build_decoder, takes=transformer.TAKES_DECODER, **_TRANSFORMER),
    "mixture-decoder": Architecture(build=transformer.build_mixture, takes=transformer.TAKES_DECODER, **_TRANSFORMER),
    "siamese": Architecture(build=siamese.build, takes=frozenset({"pair"})),
    "siamese-cnn": Architecture(build=siamese.build, takes=frozenset({"image-pair"}), widths=(32, 48), depths=(2,)),
    "embedding": Architecture(build=embedding.build, takes=embedding.TAKES, adaptive_only=True, depths=(1, 2)),
    "deep-set": Architecture(build=sets.build_set, takes=sets.TAKES_SET, depths=(1, 2)),
    "graph-net": Architecture(build=sets.build_graph, takes=sets.TAKES_GRAPH, depths=(2, 3)),
}


def draw(rng: random.Random, name: str) -> dict[str, Any]:
    """Sizes and kinds of layers."""
    of = ARCHITECTURES[name]
    return {
        "model.width": rng.choice(of.widths),
        "model.depth": rng.choice(of.depths),
        "model.activation": rng.choice(of.activations),
        "model.norm": rng.choice(of.norms),
        "model.dropout": rng.choice((0.0, 0.0, 0.0, 0.1)),
    }
