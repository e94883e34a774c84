"""How the optimisers are set."""

from typing import Any

import numpy as np
import torch
from torch import nn

from sonde.probes.settings import Settings, group_settings


class Told:
    """Settings at work, and what they say."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        names = {f"O{i}": optimizer for i, optimizer in enumerate(optimizers)} if len(optimizers) > 1 else None
        self.optimizers = optimizers
        self.settings = Settings(
            names or {"": optimizers[0]}, lambda kind, data: self.events.append((kind, dict(data)))
        )

    def step(self) -> dict[str, float]:
        """An iteration in which every optimiser makes a step: the row that comes of it."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.ones_like(parameter)
            self.settings.before_step(optimizer)
            optimizer.step()
        found: dict[str, float] = {}
        for reading in self.settings.collect():
            for row in reading.report(np.empty(0)):
                found.update(zip(row.columns.tags, row.values.tolist(), strict=True))
        return found


def _sgd(**settings: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1, **settings)


def test_settings_come_with_the_first_step_and_where_they_change() -> None:
    told = Told(_sgd(momentum=0.9, weight_decay=0.5))
    rows = [told.step() for _ in range(250)]
    told.optimizers[0].param_groups[0]["weight_decay"] = 0.25
    changed = told.step()
    assert rows[0] == {"optimizer/momentum@0": 0.9, "optimizer/weight_decay@0": 0.5}
    assert [i for i, row in enumerate(rows) if row] == [0, 100, 200]
    assert changed["optimizer/weight_decay@0"] == 0.25
    assert told.step() == {}
    assert [kind for kind, _ in told.events] == ["optimizer", "optimizer"]
    assert told.events[0][1] == {
        "optimizer": "SGD",
        "num_groups": 1,
        "num_with_state": 0,
        "groups": [{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.5, "num_parameters": 1}],
    }
    assert told.events[1][1]["groups"][0]["weight_decay"] == 0.25
    assert told.events[1][1]["num_with_state"] == 1


def test_a_momentum_that_changes_at_every_step_makes_rows_but_few_events() -> None:
    told = Told(_sgd(momentum=0.5))
    rows = []
    for i in range(150):
        told.optimizers[0].param_groups[0]["momentum"] = 0.5 + i / 1000
        rows.append(told.step())
    assert [row["optimizer/momentum@0"] for row in rows] == [0.5 + i / 1000 for i in range(150)]
    assert len(told.events) == 2


def test_optimisers_by_name_have_their_own_tags() -> None:
    row = Told(_sgd(), torch.optim.AdamW([nn.Parameter(torch.ones(1))], weight_decay=0.3)).step()
    assert row["optimizer/weight_decay@O1.0"] == 0.3
    assert row["optimizer/momentum@O0.0"] == 0.0


def test_state_that_is_gone_is_said_at_the_next_step() -> None:
    told = Told(_sgd(momentum=0.9))
    for _ in range(3):
        told.step()
    told.optimizers[0].state.clear()
    told.step()
    told.step()
    assert [data for kind, data in told.events if kind == "restored"] == [
        {"optimizer": "SGD", "num_with_state": 0, "num_before": 1}
    ]


def test_what_is_loaded_before_the_first_step_is_not_said() -> None:
    told = Told(_sgd(momentum=0.9))
    told.settings.restored(told.optimizers[0])
    assert told.events == []


def test_many_groups_are_looked_at_now_and_then() -> None:
    groups = [{"params": [nn.Parameter(torch.ones(1))]} for _ in range(40)]
    told = Told(torch.optim.SGD(groups, lr=0.1))
    assert len(told.step()) == 80
    for group in told.optimizers[0].param_groups:
        group["weight_decay"] = 1.0
    rows = [told.step() for _ in range(6)]
    assert [bool(row) for row in rows] == [False] * 5 + [True]
    assert told.events[0][1]["num_groups"] == 40
    assert len(told.events[0][1]["groups"]) == 16


def test_after_closing_nothing_is_noted() -> None:
    told = Told(_sgd())
    told.settings.close()
    assert told.step() == {}


def test_settings_of_every_group_stand_behind_its_place() -> None:
    a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    groups: list[dict[str, Any]] = [{"params": [a]}, {"params": [b], "weight_decay": 0.0, "betas": (0.5, 0.9)}]
    adam = torch.optim.AdamW(groups)
    assert group_settings(adam) == {
        "optimizer/beta1@0": 0.9,
        "optimizer/beta2@0": 0.999,
        "optimizer/weight_decay@0": 0.01,
        "optimizer/epsilon@0": 1e-8,
        "optimizer/beta1@1": 0.5,
        "optimizer/beta2@1": 0.9,
        "optimizer/weight_decay@1": 0.0,
        "optimizer/epsilon@1": 1e-8,
    }


def test_settings_that_are_no_numbers_at_hand_are_left_out() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.param_groups[0].update(
        momentum=torch.tensor(0.5), weight_decay=torch.empty((), device="meta"), eps=(None, 1e-3), betas=None
    )
    assert group_settings(optimizer, "G") == {"optimizer/momentum@G.0": 0.5}
