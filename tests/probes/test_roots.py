"""The forwards of whole models."""

from typing import Any

import pytest
import torch
from torch import nn

from sonde.probes.calls import CALLS
from sonde.probes.roots import COMPILED, UNSEEN, Roots

from .armed import num_told


def test_forwards_are_told_around_those_that_gradients_are_wanted_for() -> None:
    nets = {"G": nn.Linear(2, 2), "D": nn.Linear(2, 1)}
    roots, told = Roots(nets), list[Any]()
    x = torch.ones(1, 2)
    roots.attach(
        lambda name, args, kwargs: told.append((name, len(args), list(kwargs))),
        lambda name, output: told.append((name, output.shape[1])),
    )
    with torch.no_grad():
        nets["D"](x)
    nets["D"](nets["G"](input=x))
    roots.release()
    nets["G"](x)
    assert told == [("G", 0, ["input"]), ("G", 2), ("D", 1, []), ("D", 1)]


def test_a_function_that_fails_leaves_the_forward_alone_and_is_raised_at_the_end() -> None:
    net = nn.Linear(2, 2)
    roots = Roots({"": net})

    def fail(name: str, args: Any, kwargs: Any) -> None:
        raise ValueError("on purpose")

    roots.attach(fail)
    assert net(torch.ones(1, 2)).shape == (1, 2)
    with pytest.raises(ValueError, match="on purpose"):
        roots.close()
    assert len(roots) == 0
    assert num_told(net) == 0


def test_trouble_is_named_with_its_model() -> None:
    plain, compiled = nn.Linear(2, 2), nn.Linear(2, 2)
    compiled.compile(backend="eager")
    roots = Roots({"a": plain, "b": compiled})
    for _ in range(3):
        assert roots.trouble() == {"b": COMPILED}
        roots.attach(lambda name, args, kwargs: None)
        assert compiled not in CALLS
        roots.release()
    assert roots.trouble() == {"a": UNSEEN, "b": COMPILED}
    roots.attach(lambda name, args, kwargs: None)
    plain(torch.ones(1, 2))
    roots.release()
    assert roots.trouble() == {"b": COMPILED}
