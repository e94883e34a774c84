"""Training is sacred, whatever it is made of: the same bits, evaluations, random numbers and compiled graphs."""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from sonde.monitor.watch import watch

from . import loops
from .setups import SETUPS

pytestmark = [
    # Torch's own, of scripts, of its compilers and of a learning rate that nobody asked.
    pytest.mark.filterwarnings("ignore:.*`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning"),
    pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning"),
]

NUM_STEPS = 12
BETWEEN = 3  # steps from one evaluation to the next

# The set-ups do not differ in what becomes of the numbers: no process judges them.
BY_DEFAULT: dict[str, Any] = {"settings": {"doctor": "off"}, "console": "quiet", "strict": True}
AT_EVERY_STEP = {**BY_DEFAULT, "budget": math.inf, "cadence": loops.ALWAYS}


class Outcome(NamedTuple):
    losses: list[Tensor]
    evaluations: list[Tensor]
    weights: list[Tensor]
    """Buffers among them."""
    states: list[Tensor]
    """Of the optimisers."""
    others: list[Tensor]
    random: tuple[Any, ...]
    """Of torch, Python and NumPy."""
    graphs: list[int]
    """How many were compiled up to each step."""


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    yield
    torch.compiler.reset()


def _values(things: Any) -> list[Any]:
    return list(things.values()) if isinstance(things, dict) else [things]


def _train(name: str, run: Path | None = None, settings: dict[str, Any] | None = None) -> Outcome:
    if name.startswith("compiled"):
        torch.compiler.reset()
        counters.clear()
    num_graphs = 0

    def count(graph: torch.fx.GraphModule, _: Any) -> Any:
        nonlocal num_graphs
        num_graphs += 1
        return graph.forward

    def compiled(thing: Any, *, in_place: bool = False, backend: Any = count, **more: Any) -> Any:
        return thing.compile(backend=backend, **more) if in_place else torch.compile(thing, backend=backend, **more)

    torch.manual_seed(1)
    setup = SETUPS[name](compiled)
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global one is what must not be touched
    watching = None if run is None else watch(setup.watched, setup.optimizers, run=run, **settings or {})
    losses, evaluations, graphs = [], [], []
    held_out = next(loops.batches(1, seed=9))
    for step, batch in enumerate(loops.batches(NUM_STEPS)):
        loss = setup.iterate(batch, step)
        losses.append(loss.detach().clone())
        if watching is not None:
            watching.step(loss)
        if step % BETWEEN == BETWEEN - 1:
            evaluations.append(setup.evaluate(held_out).detach().clone())
            if watching is not None:
                watching.evaluate(loss=float(evaluations[-1].mean()))
        graphs.append(num_graphs + counters["stats"]["unique_graphs"])
    if watching is not None:
        watching.close()
    states = [state for optimizer in _values(setup.optimizers) for state in optimizer.state.values()]
    return Outcome(
        losses,
        evaluations,
        [t.detach().clone() for model in _values(setup.watched) for t in model.state_dict().values()],
        [t.clone() for state in states for t in state.values() if isinstance(t, Tensor)],
        [t.detach().clone() for t in setup.also()],
        (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())),  # noqa: NPY002
        graphs,
    )


def _differences(a: Outcome, b: Outcome) -> list[str]:
    """What is not the same to the bit; NaN is the same as NaN."""
    found = [what for what in ("random", "graphs") if getattr(a, what) != getattr(b, what)]
    for what in ("losses", "evaluations", "weights", "states", "others"):
        left, right = getattr(a, what), getattr(b, what)
        same = len(left) == len(right) and all(
            torch.equal(x.nan_to_num(7.0), y.nan_to_num(7.0)) for x, y in zip(left, right, strict=True)
        )
        found += [] if same else [what]
    return found


@pytest.mark.parametrize("name", SETUPS)
def test_a_training_is_the_same_watched_and_unwatched(name: str, tmp_path: Path) -> None:
    alone = _train(name)
    assert len({float(loss) for loss in alone.losses}) > 3, "it learns something"
    assert len(alone.evaluations) == NUM_STEPS // BETWEEN
    if name.startswith("compiled"):
        assert alone.graphs[-1] > 0
    assert not _differences(alone, _train(name, tmp_path / "default", BY_DEFAULT))
    assert not _differences(alone, _train(name, tmp_path / "always", AT_EVERY_STEP))


def test_there_are_a_hundred_set_ups() -> None:
    assert len(SETUPS) >= 100


def test_a_difference_would_be_found() -> None:
    alone = _train("evaluation: in inference mode")
    other = _train("evaluation: in inference mode")
    assert not _differences(alone, other)
    other.evaluations[1].add_(1e-6)
    other.states[-1].mul_(1.000001)
    other.graphs[-1] += 1
    assert _differences(alone, other) == ["graphs", "evaluations", "states"]


def test_an_evaluation_with_other_bits_would_be_found() -> None:
    """Hooks on layers are enough: torch leaves its fused path."""
    setup = SETUPS["model: encoder"](torch.compile)
    held_out = next(loops.batches(1, seed=9))
    alone = setup.evaluate(held_out)
    for layer in setup.watched.layers:
        layer.register_forward_hook(lambda *_: None)
    assert not torch.equal(alone, setup.evaluate(held_out))
