"""Operations of a step against those that torch counts, operator by operator."""

from collections.abc import Callable

import pytest
import torch
from tests.probes.armed import iteration
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sonde.probes.flops import Flops


class Foreign(nn.Module):
    """A matrix the other way round, as GPT-2 has it, and a table of positions that nothing is multiplied by."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 7))
        self.places = nn.Parameter(torch.randn(9, 7))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.places[: x.shape[-2]]


def frozen(net: nn.Module) -> nn.Module:
    return net.requires_grad_(False)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 5)), (7, 6)),
    "sequence": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)), (4, 5, 6)),
    "frozen below": (lambda: nn.Sequential(frozen(nn.Linear(6, 8)), nn.Linear(8, 5)), (7, 6)),
    "frozen above": (lambda: nn.Sequential(nn.Linear(6, 8), frozen(nn.Linear(8, 5))), (7, 6)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2),
            nn.BatchNorm2d(8),
            nn.ConvTranspose2d(8, 4, 3, stride=2),
            nn.Conv2d(4, 5, 1),
        ),
        (2, 3, 9, 9),
    ),
    "foreign": (lambda: nn.Sequential(nn.Linear(6, 6), Foreign()), (4, 5, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_operations_are_those_that_torch_counts(name: str) -> None:
    make, shape = MODELS[name]
    net, data = make(), torch.randn(shape)
    with FlopCounterMode(display=False) as counter:
        net(data).sum().backward()
    found = iteration(Flops({"": net}), lambda: net(data).sum().backward())
    assert found == {"flops/step": counter.get_total_flops()}


def test_groups_and_recurrent_layers_are_counted_by_their_formula() -> None:
    net = nn.Conv1d(4, 6, 3, groups=2)
    assert iteration(Flops({"": net}), lambda: net(torch.ones(5, 4, 8)))["flops/step"] == 2 * 2 * (6 * 2 * 3) * 5 * 6
    rnn = nn.LSTM(3, 4, batch_first=True)
    wanted = 2 * 2 * (16 * 3 + 16 * 4) * 2 * 5
    assert iteration(Flops({"": rnn}), lambda: rnn(torch.ones(2, 5, 3)))["flops/step"] == wanted


def test_forwards_of_an_iteration_add_up_and_evaluations_do_not_count() -> None:
    net = nn.Linear(3, 5)

    def work() -> None:
        net(torch.ones(4, 3))
        net(torch.ones(2, 3))
        with torch.no_grad():
            net(torch.ones(100, 3))

    probe = Flops({"": net})
    assert iteration(probe, work) == {"flops/step": 2 * 2 * 15 * 6}
    assert iteration(probe, lambda: None) == {}


def test_a_compiled_part_is_not_measured() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].compile(backend="eager")
    probe = Flops({"": net})
    assert iteration(probe, lambda: None) == {}
    assert set(probe.not_measured()) == set(probe.yields)


def test_a_model_without_weights_has_nothing_to_count() -> None:
    assert Flops({"": nn.ReLU()}).num_slots == 0
