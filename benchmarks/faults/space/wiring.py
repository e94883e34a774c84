"""A model as the recipe wants it: built, initialised, cut where the recipe cuts it."""

import torch
from benchmarks.faults.space.axes.architectures.catalogue import ARCHITECTURES
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Model, Training
from torch import Tensor, nn


class Encoder(nn.Module):
    """A layer whose outputs are handed on without their graph."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).detach()


def build(training: Training, shape: Shape) -> nn.Module:
    """The training's model; what is random comes from torch's own generator."""
    model = ARCHITECTURES[training.architecture].build(training.model, shape)
    initialise(model, training.model)
    if training.model.detached:
        cut(model)
    return nn.Sequential(model, nn.Softmax(-1)) if training.loss.softmax else model


@torch.no_grad()
def initialise(model: nn.Module, settings: Model) -> None:
    """Change the initial weights as the recipe says."""
    if settings.recurrent_scale != 1:
        for name, parameter in model.named_parameters():
            if "weight_hh" in name:
                parameter.mul_(settings.recurrent_scale)
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    for place, layer in enumerate(layers):
        if settings.init == "scaled":
            layer.weight.mul_(settings.init_scale)
        elif settings.init == "constant":
            layer.weight.fill_(settings.init_scale)
        elif settings.init == "biased" and place < len(layers) - 1 and layer.bias is not None:
            layer.bias.sub_(settings.init_scale)


def cut(model: nn.Module) -> None:
    """Put the first layer with weights into an `Encoder`."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], Encoder(module))
            return


def freeze(model: nn.Module, share: float) -> None:
    """Switch off the gradients of this share of the parameter tensors, from the input on."""
    parameters = list(model.parameters())
    for parameter in parameters[: int(share * len(parameters))]:
        parameter.requires_grad_(False)
