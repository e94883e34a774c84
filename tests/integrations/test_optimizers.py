"""Optimisers are noted as they are made; those that were made before are found."""

import copy
import pickle
import subprocess
import sys

import torch
from torch import nn

from sonde.integrations.finding import alive
from sonde.integrations.listening import Listening
from sonde.integrations.optimizers import Optimizers
from sonde.monitor.guard import Guard

_FIRST = """
import copy, pickle, torch
from torch import nn
from sonde.integrations import optimizers as module
from sonde.integrations.listening import Listening
from sonde.monitor.guard import Guard

def refuse(kind):
    raise AssertionError("all objects were gone through")

module.alive = refuse
listening = Listening(Guard(print, strict=True))
optimizers = module.Optimizers(listening)
net = nn.Linear(2, 1)
first, second = torch.optim.SGD(net.parameters(), 0.1), torch.optim.Adam(net.parameters())
twin, read = copy.deepcopy(second), pickle.loads(pickle.dumps(first))
assert [id(one) for one in optimizers()] == [id(one) for one in (first, second, twin, read)]

class Cover(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner

cover = Cover(first)
assert not any(one is cover for one in optimizers())
del second
assert [id(one) for one in optimizers()] == [id(one) for one in (first, twin, read)]
listening.stop()
"""


def test_optimizers_are_noted_as_they_are_made_copied_and_read_and_nothing_is_walked() -> None:
    subprocess.run([sys.executable, "-c", _FIRST], check=True)


def test_optimizers_that_were_made_before_are_found_too() -> None:
    net = nn.Linear(2, 1)
    before = torch.optim.SGD(net.parameters(), 0.1)
    listening = Listening(Guard(print, strict=True))
    try:
        optimizers = Optimizers(listening)
        later = copy.deepcopy(before), pickle.loads(pickle.dumps(before))
        found = {id(one) for one in optimizers()}
    finally:
        listening.stop()
    assert {id(before), *map(id, later)} <= found <= {id(one) for one in alive(torch.optim.Optimizer)}
