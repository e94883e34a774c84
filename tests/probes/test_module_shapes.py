import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sonde.core.model_table import Passed
from sonde.probes.events import Events
from sonde.probes.module_shapes import ModuleShapes


def _listening(model: nn.Module) -> tuple[ModuleShapes, list[Mapping[str, Passed]]]:
    told: list[Mapping[str, Passed]] = []
    shapes = ModuleShapes({"": model}, told.append)
    shapes.listen(Events(lambda error: pytest.fail(str(error))))
    return shapes, told


def _end_step(shapes: ModuleShapes) -> None:
    for reading in shapes.collect():
        assert list(reading.report(np.empty(0))) == []


def test_the_first_call_counts_and_after_the_first_step_nobody_listens() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    shapes, told = _listening(model)
    model(torch.ones(5, 2))
    model(torch.ones(7, 2))
    _end_step(shapes)
    late = nn.Linear(1, 1)
    model.add_module("late", late)
    late(torch.ones(2, 1))
    _end_step(shapes)
    assert told == [
        {"model": Passed((5, 2), (5, 3)), "0": Passed((5, 2), (5, 3)), "1": Passed((5, 3), (5, 3))},
    ]


def test_of_a_model_that_was_not_called_nothing_is_told() -> None:
    shapes, told = _listening(nn.Linear(2, 1))
    nn.Linear(2, 1)(torch.ones(3, 2))  # somebody else's
    _end_step(shapes)
    assert told == []


def test_what_is_closed_before_the_first_step_tells_nothing() -> None:
    model = nn.Linear(2, 1)
    shapes, told = _listening(model)
    model(torch.ones(3, 2))
    shapes.close()
    model(torch.ones(3, 2))
    _end_step(shapes)
    assert told == []


class Odd(nn.Module):
    """Gives back whatever it gets."""

    def forward(self, *given: Any) -> Any:
        return given[0] if given else None


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ((), None),
        ((3.5, "text"), None),
        ((torch.tensor(math.pi),), ()),
        (([torch.ones(2, 3), torch.ones(4)],), (2, 3)),
        ((torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),), None),
    ],
    ids=["nothing", "no-tensor", "scalar", "list", "nested"],
)
def test_inputs_without_plain_sizes_have_no_shape(given: tuple[Any, ...], shape: tuple[int, ...] | None) -> None:
    model = Odd()
    shapes, told = _listening(model)
    model(*given)
    _end_step(shapes)
    assert told == [{"model": Passed(shape, shape)}]


def test_a_tensor_whose_sizes_cannot_be_asked_for_is_said_after_the_pass_and_not_in_it() -> None:
    class Rude(Tensor):
        @property
        def is_nested(self) -> bool:  # type: ignore[override]
            raise RuntimeError("no")

    model = Odd()
    shapes, told = _listening(model)
    given = torch.ones(2).as_subclass(Rude)
    assert model(given) is given
    with pytest.raises(RuntimeError, match="no"):
        shapes.collect()
    _end_step(shapes)
    assert told == []
