"""Which parameters are watched, under which names."""

import torch
from torch import nn

from sonde.probes.parameters import num_parameters, of_optimizer, parameter_names


def _names(optimizer: torch.optim.Optimizer, **models: nn.Module) -> list[str]:
    return [watched.name for watched in of_optimizer(optimizer, parameter_names(models))]


def test_names_are_those_of_the_model_without_wrappers() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    wrapped = nn.DataParallel(net)
    assert [w.name for w in of_optimizer(optimizer, parameter_names({"": wrapped}))] == ["0.weight", "0.bias"]
    assert _names(optimizer, G=wrapped) == ["G.0.weight", "G.0.bias"]


def test_names_that_would_fall_together_stay_whole() -> None:
    net = nn.ModuleDict({"module": nn.Linear(2, 2, bias=False), "other": nn.Linear(2, 2, bias=False)})
    net.register_parameter("weight", nn.Parameter(torch.ones(2)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    names = [w.name for w in of_optimizer(optimizer, parameter_names({"": net}))]
    assert sorted(names) == ["module.weight", "other.weight", "weight"]


def test_tied_parameter_has_its_first_name() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    assert _names(optimizer, a=net, b=nn.Sequential(net)) == ["a.0.weight"]


def test_parameter_of_no_model_is_named_after_its_place() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))]})
    assert _names(optimizer) == ["group0.0", "group1.0", "group1.1"]
    assert [w.name for w in of_optimizer(optimizer, {}, "G")] == ["G.group0.0", "G.group1.0", "G.group1.1"]
    assert num_parameters(optimizer) == 3


def test_parameters_without_floating_point_values_are_left_out() -> None:
    whole = nn.Parameter(torch.arange(3), requires_grad=False)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1)), whole], lr=0.1)
    assert _names(optimizer) == ["group0.0"]
    assert num_parameters(optimizer) == 2
