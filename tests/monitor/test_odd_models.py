"""Models that are odd: whatever it is, `watch` does not raise, the training goes on, and what is left out is said."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sonde


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(torch.relu(self.a(x)))
        return out


class Nameless(Net):
    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        raise RuntimeError("no names")


class WithoutModules(Net):
    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        raise RuntimeError("no modules")


class WithoutChildren(Net):
    def children(self) -> Iterator[nn.Module]:
        raise RuntimeError("no children")


class NumberedNames(Net):
    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[Any, nn.Parameter]]:
        yield from enumerate([*self.a.parameters(), *self.b.parameters()])


class Trap(Net):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("a", "b"):
            return super().__getattr__(name)
        raise RuntimeError(f"no {name}")


class PropertyTrap(Net):
    @property
    def parameters(self) -> Any:
        raise RuntimeError("no parameters")


def lazy() -> Net:
    net = Net()
    net.a = nn.LazyLinear(4)
    return net


def lazy_unused() -> Net:
    net = Net()
    net.more = nn.LazyLinear(4)
    return net


def inside_itself() -> Net:
    net = Net()
    net.itself = net
    return net


def in_a_circle() -> Net:
    net = Net()
    net.part = nn.Module()
    net.part.whole = net
    return net


def parameter(name: str, tensor: Tensor) -> Callable[[], Net]:
    def make() -> Net:
        net = Net()
        net.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
        return net

    return make


def module(name: str) -> Callable[[], Net]:
    def make() -> Net:
        net = Net()
        net.add_module(name, nn.Linear(2, 2))
        return net

    return make


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "lazy": (lazy, ""),
    "lazy-unused": (lazy_unused, "lazy and not used yet"),
    "long-parameter": (parameter("x" * 2000, torch.zeros(3)), "named with control characters"),
    "control-parameter": (parameter("x\n\x1b[31m", torch.zeros(3)), "named with control characters"),
    "surrogate-parameter": (parameter("x\udcff", torch.zeros(3)), "named with control characters"),
    "long-module": (module("x" * 2000), "named with control characters"),
    "control-module": (module("x\x00y"), "named with control characters"),
    "meta": (parameter("x", torch.zeros(3, device="meta")), "meta device"),
    "integers": (parameter("x", torch.zeros(3, dtype=torch.int8)), "without floating-point values"),
    "8-bit": (parameter("x", torch.zeros(3).to(torch.float8_e4m3fn)), "float8"),
    "complex": (parameter("x", torch.zeros(3, dtype=torch.complex64)), ""),
    "sparse": (parameter("x", torch.eye(3).to_sparse()), "without floating-point values"),
    "nameless": (Nameless, "no names"),
    "without-modules": (WithoutModules, "no modules"),
    "without-children": (WithoutChildren, "no children"),
    "numbered": (NumberedNames, "no text"),
    "attribute-trap": (Trap, ""),
    "property-trap": (PropertyTrap, "no"),
    "inside-itself": (inside_itself, "lies inside itself"),
    "in-a-circle": (in_a_circle, "lies inside itself"),
}


QUIET = ("", "without floating-point values")
"""Nothing is left out, or nothing that a user would not expect."""


def parameters_of(model: nn.Module) -> list[nn.Parameter]:
    """Without asking the model."""
    parts = [part for part in vars(model)["_modules"].values() if isinstance(part, nn.Linear)]
    return [*vars(model)["_parameters"].values(), *(p for part in parts for p in part.parameters())]


@pytest.mark.parametrize("name", MODELS)
def test_an_odd_model_is_watched_as_far_as_that_goes_and_the_rest_is_said(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make, reason = MODELS[name]
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(parameters_of(model), lr=0.01)
    with (
        caplog.at_level(logging.WARNING, "sonde"),
        sonde.watch(model, optimizer, run=tmp_path / "run", console="quiet", budget=float("inf")) as watch,
    ):
        for _ in range(12):
            loss = model(torch.ones(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
    run = sonde.load(tmp_path / "run")
    tags = {"a.weight", "a.bias", "b.weight", "b.bias"}
    assert run.steps == 12
    assert {tag.partition("@")[2] for tag in run.tags("grad/norm@*")} == tags
    assert not run.events("monitor-problem")
    said = [event.data["reason"] for event in run.events("not-measured") if reason in event.data["reason"]]
    warned = [record.getMessage() for record in caplog.records if "unwatched" in record.getMessage()]
    assert said
    assert bool(warned) == (reason not in QUIET)
    assert reason in QUIET or reason in " ".join(warned)


def test_what_is_no_model_is_raised(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with pytest.raises(TypeError, match=r"watch\(model\)"):
        sonde.watch(model.forward, optimizer, run=tmp_path / "run")  # type: ignore[arg-type]
