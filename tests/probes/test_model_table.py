import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel

from sonde.core.model_table import ModelTable
from sonde.core.parameter_kinds import Kind
from sonde.probes.model_table import model_table
from sonde.probes.parameters import parameter_names


def _table(model: nn.Module, *groups: dict[str, Any]) -> ModelTable:
    return model_table({"": model}, {"": torch.optim.SGD(list(groups) or model.parameters(), lr=0.1)})


def _kinds(model: nn.Module) -> dict[str, str]:
    return {row.name: str(row.kind) for row in _table(model).parameters}


class Tied(nn.Module):
    """Its output layer has the weight of its embedding; it knows itself, too."""

    def __init__(self) -> None:
        super().__init__()
        self.lookup = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.lookup.weight
        self.itself = self


def test_modules_have_their_class_and_how_deep_they_lie() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), nn.Linear(3, 1))
    found = [(row.name, row.type, row.depth) for row in _table(model).modules]
    assert found == [
        ("model", "Sequential", 0),
        ("0", "Sequential", 1),
        ("0.0", "Linear", 2),
        ("0.1", "ReLU", 2),
        ("1", "Linear", 1),
    ]


def test_parameters_have_shape_format_group_and_whether_they_are_trained() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1).to(torch.bfloat16), nn.Linear(1, 1))
    model[2].requires_grad_(False)
    table = _table(model, {"params": model[1].parameters()}, {"params": model[0].parameters()})
    found = [(row.name, row.shape, row.dtype, row.group, row.trainable) for row in table.parameters]
    assert found == [
        ("0.weight", (3, 2), "float32", 1, True),
        ("0.bias", (3,), "float32", 1, True),
        ("1.weight", (1, 3), "bfloat16", 0, True),
        ("1.bias", (1,), "bfloat16", 0, True),
        ("2.weight", (1, 1), "float32", None, False),
        ("2.bias", (1,), "float32", None, False),
    ]


def test_parameters_say_where_they_are() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False, device="meta"))
    assert {row.name: row.device for row in _table(model).parameters} == {"0.weight": "cpu", "1.weight": "meta"}


def test_what_a_parameter_is_for_is_told_by_the_class_of_its_module_whatever_it_is_called() -> None:
    class Oddly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.normal_head = nn.Linear(2, 2)
            self.embedded_mlp = nn.Conv1d(2, 2, 1)
            self.lookup = nn.Embedding(3, 2)
            self.first = nn.BatchNorm1d(2)
            self.memory = nn.GRU(2, 2)
            self.lora_up = nn.Linear(2, 2, bias=False)

    assert _kinds(Oddly()) == {
        "normal_head.weight": "matrix",
        "normal_head.bias": "bias",
        "embedded_mlp.weight": "matrix",
        "embedded_mlp.bias": "bias",
        "lookup.weight": "embedding",
        "first.weight": "normalisation",
        "first.bias": "bias",
        "memory.weight_ih_l0": "matrix",
        "memory.weight_hh_l0": "matrix",
        "memory.bias_ih_l0": "bias",
        "memory.bias_hh_l0": "bias",
        "lora_up.weight": "adapter",
    }


def test_modules_of_the_users_own_are_read_by_their_names_and_shapes() -> None:
    class LlamaRMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.pos_emb = nn.Parameter(torch.zeros(1, 5, 4))
            self.kernel = nn.Parameter(torch.zeros(4, 4))

    assert _kinds(nn.Sequential(LlamaRMSNorm(), Scale())) == {
        "0.weight": "normalisation",
        "1.weight": "other",
        "1.pos_emb": "embedding",
        "1.kernel": "matrix",
    }


def test_a_tensor_with_several_names_is_there_once_and_names_the_others() -> None:
    model = Tied()
    (row,) = _table(model).parameters
    assert (row.name, row.tied, row.kind) == ("lookup.weight", ("head.weight",), Kind.EMBEDDING)
    shared = nn.Linear(2, 2, bias=False)
    (row,) = _table(nn.ModuleList([shared, shared, shared])).parameters
    assert (row.name, row.tied) == ("0.weight", ("1.weight", "2.weight"))


def test_modules_that_stand_in_each_other_many_times_are_walked_in_bounded_time() -> None:
    inner: nn.Module = nn.Linear(1, 1)
    for _ in range(40):  # 2⁴⁰ places
        inner = nn.ModuleList([inner, inner])
    table = _table(inner)
    assert len(table.parameters) == 2
    assert len(table.parameters[0].tied) == 16


def test_wrappers_leave_no_trace() -> None:
    plain = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    compiled: Any = torch.compile(copy.deepcopy(plain), backend="eager")
    assert _table(compiled) == _table(plain)
    assert _table(DataParallel(plain)) == _table(plain)


def test_models_and_optimisers_with_names_prefix_and_say_them() -> None:
    models = {"G": nn.Linear(1, 2), "D": nn.Linear(2, 1)}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.1) for name, model in models.items()}
    table = model_table(models, optimizers)
    assert [(row.name, row.depth) for row in table.modules] == [("G", 0), ("D", 0)]
    assert [(row.name, row.optimizer) for row in table.parameters] == [
        ("G.weight", "G"),
        ("G.bias", "G"),
        ("D.weight", "D"),
        ("D.bias", "D"),
    ]


def test_lazy_parameters_are_counted_until_they_have_a_shape() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model_table({"": model}, {"": optimizer})
    assert (before.parameters, before.left_out) == ((), {"lazy and not used yet": 2})
    model(torch.ones(1, 5))
    after = model_table({"": model}, {"": optimizer})
    assert [row.shape for row in after.parameters] == [(3, 5), (3,)]


def test_absurd_names_are_counted_and_parameters_of_no_model_are_there() -> None:
    model = nn.Module()
    model.register_parameter("two\nlines", nn.Parameter(torch.ones(1)))
    model.add_module("x" * 2000, nn.Linear(1, 1, bias=False))
    free = nn.Parameter(torch.ones(2, 2))
    table = model_table({"": model}, {"": torch.optim.SGD([*model.parameters(), free], lr=0.1)})
    assert [row.name for row in table.parameters] == ["group0.2"]
    assert sum(table.left_out.values()) == 3


class Rude(nn.Linear):
    """Tells nobody what it has."""

    def named_parameters(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    def named_modules(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no")


def test_a_model_that_does_not_tell_its_names_is_read_all_the_same() -> None:
    model = Rude(2, 1)
    parameters: list[Tensor] = [model.weight, model.bias]
    table = model_table({"": model}, {"": torch.optim.SGD(parameters, lr=0.1)})
    assert [row.name for row in table.parameters] == ["weight", "bias"]


@pytest.mark.parametrize("model", [Tied(), nn.TransformerEncoderLayer(4, 1), nn.LSTM(2, 2, num_layers=2)])
def test_names_are_those_of_the_tags(model: nn.Module) -> None:
    assert {row.name for row in _table(model).parameters} == set(parameter_names({"": model}).values())
