"""Which parts of a model are its blocks."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.utils.parametrizations import weight_norm

from sonde.probes.blocks import blocks_of, leaves_outside


class Residual(nn.Module):
    def __init__(self, width: int = 4, experts: int = 0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + self.up(self.norm(x))
        return y


def _names(models: Mapping[str, nn.Module] | nn.Module) -> list[str]:
    return [block.name for block in blocks_of(models if isinstance(models, Mapping) else {"": models})]


def _all_leaves(models: Mapping[str, nn.Module]) -> list[str]:
    blocks = blocks_of(models)
    inside = [leaf.name for block in blocks for leaf in block.leaves]
    return inside + [leaf.name for group in leaves_outside(models, blocks) for leaf in group]


def test_layers_of_a_transformer_are_its_blocks() -> None:
    net = nn.Transformer(8, 2, num_encoder_layers=2, num_decoder_layers=3, dim_feedforward=8, batch_first=True)
    assert _names(net) == [f"encoder.layers.{i}" for i in range(2)] + [f"decoder.layers.{i}" for i in range(3)]


def test_residual_blocks_are_found_inside_stages() -> None:
    stages = [nn.Sequential(Residual(), Residual()) for _ in range(2)]
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), *stages, nn.Linear(4, 2))
    assert _names(net) == ["2.0", "2.1", "3.0", "3.1"]
    assert [leaf.name for group in leaves_outside({"": net}, blocks_of({"": net})) for leaf in group] == ["0", "1", "4"]


def test_sequences_without_blocks_inside_are_blocks() -> None:
    net = nn.ModuleDict({"body": nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(3)))})
    assert _names(net) == ["body.0", "body.1", "body.2"]


def test_what_lies_inside_a_block_is_not_searched() -> None:
    net = nn.ModuleList(Residual(experts=3) for _ in range(2))
    (first, second) = blocks_of({"": net})
    assert (first.name, second.name) == ("0", "1")
    assert [leaf.name for leaf in first.leaves][:3] == ["0.norm", "0.up", "0.experts.0.0"]


def test_matrices_stand_in_where_nothing_repeats() -> None:
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1))
    assert _names(net) == ["0", "1", "4"]
    assert _names(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))) == ["0"]


def test_single_member_is_no_repetition() -> None:
    assert _names(nn.Sequential(Residual(), nn.Linear(4, 4))) == ["0.up", "1"]


def test_one_module_in_many_places_counts_once() -> None:
    shared = Residual()
    assert _names(nn.ModuleList([shared, shared, shared])) == ["0.up"]
    assert _names(nn.ModuleList([shared, Residual(), shared])) == ["0", "1"]
    other = nn.Sequential(Residual(), Residual())
    assert _names({"a": other, "b": nn.ModuleDict({"same": other})}) == ["a.0", "a.1"]


@pytest.mark.parametrize(
    "wrap", [nn.DataParallel, lambda m: torch.compile(m, backend="eager"), checkpoint_wrapper], ids=["dp", "c", "ac"]
)
def test_wrappers_are_looked_through(wrap: Callable[[nn.Module], nn.Module]) -> None:
    plain = nn.ModuleList([Residual(), Residual()])
    wrapped = wrap(nn.ModuleList([wrap(block) for block in plain]))
    assert _names(wrapped) == ["0", "1"]
    assert [block.module for block in blocks_of({"": wrapped})] == list(plain)
    assert [leaf.name for leaf in blocks_of({"": wrapped})[0].leaves] == ["0.norm", "0.up"]
    assert _names({"G": wrapped}) == ["G.0", "G.1"]


def test_root_is_called_model_or_by_its_name() -> None:
    assert _names(nn.Linear(2, 2)) == ["model"]
    assert _names({"": torch.compile(nn.Linear(2, 2), backend="eager")}) == ["model"]  # type: ignore[dict-item]
    assert _names({"G": nn.Linear(2, 2), "D": nn.DataParallel(nn.Linear(2, 2))}) == ["G", "D"]


def test_names_that_would_fall_together_stay_whole() -> None:
    net = nn.ModuleDict({"module": nn.ModuleDict({"fc": nn.Linear(2, 2)}), "fc": nn.Linear(2, 2)})
    assert _names(net) == ["module.fc", "fc"]


def test_every_leaf_has_its_turn_once() -> None:
    body = nn.ModuleList([Residual(), Residual(experts=2), Residual()])
    tied = nn.Linear(4, 4)
    net = nn.ModuleDict({"in": nn.Embedding(9, 4), "body": body, "tied": nn.ModuleList([tied, tied]), "act": nn.GELU()})
    net["many"] = nn.ModuleList(nn.Dropout() for _ in range(40))
    wanted = {id(m): name for name, m in net.named_modules() if not list(m.children()) and type(m) is not nn.ModuleList}
    assert Counter(_all_leaves({"": net})) == Counter(wanted.values())
    assert max(map(len, leaves_outside({"": net}, blocks_of({"": net})))) <= 16


def test_attention_and_parametrised_modules_are_leaves() -> None:
    net = nn.ModuleDict({"attn": nn.MultiheadAttention(4, 2), "fc": weight_norm(nn.Linear(4, 4))})
    assert _all_leaves({"": net}) == ["attn", "fc"]


def test_module_with_a_list_of_parameters_is_a_leaf() -> None:
    class Scales(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = nn.ParameterList([torch.ones(2), torch.ones(2)])

    assert _all_leaves({"": nn.Sequential(Scales(), nn.Linear(2, 2))}) == ["1", "0"]


def test_models_without_anything_have_no_blocks() -> None:
    assert blocks_of({}) == []
    assert blocks_of({"": nn.Sequential()}) == []
    assert leaves_outside({"": nn.Sequential()}, []) == []
    assert [leaf.name for (leaf,) in leaves_outside({"": nn.ReLU()}, [])] == ["model"]
