"""What `watch` says of a model in `run.json`, and that rules are told it live as in replay."""

import json
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

import sonde
from sonde.core.model_table import ModelTable
from sonde.core.parameter_kinds import Kind


def _model(run: Path) -> ModelTable:
    found = sonde.load(run).model
    assert found is not None
    return found


def test_parameters_that_come_later_or_get_their_shape_later_are_in_the_table(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.LazyLinear(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    added = nn.Linear(1, 1)
    model.add_module("late", added)
    optimizer.param_groups[0]["params"] = [*model[0].parameters(), *model[1].parameters()]
    with sonde.watch(
        model, optimizer, run=tmp_path / "a", console="quiet", settings={"doctor": "off"}, strict=True
    ) as watch:
        for step in range(4):
            loss = model(torch.ones(4, 2)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step(loss)
            if step == 1:
                optimizer.add_param_group({"params": added.parameters()})
    table = _model(tmp_path / "a")
    assert "## Model\n\n6 parameters with" in sonde.report(tmp_path / "a").markdown()
    assert {row.name: (row.shape, row.group) for row in table.parameters} == {
        "0.weight": ((3, 2), 0),
        "0.bias": ((3,), 0),
        "1.weight": ((1, 3), 0),
        "1.bias": ((1,), 0),
        "late.weight": ((1, 1), 1),
        "late.bias": ((1,), 1),
    }
    assert table.left_out == {}


def _trained(model: nn.Module, run: Path, x: torch.Tensor, num_steps: int = 3) -> dict[str, tuple[object, object]]:
    """The shapes that the run has of the model's modules."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sonde.watch(model, optimizer, run=run, console="quiet", settings={"doctor": "thread"}, strict=True) as watch:
        for number in range(num_steps):
            loss = model(x[number:]).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step(loss)
    return {row.name: (row.input, row.output) for row in _model(run).modules}


class Sometimes(nn.Module):
    """Takes its input by keyword, gives a dictionary, and never calls one of its modules."""

    def __init__(self) -> None:
        super().__init__()
        self.lookup = nn.Embedding(10, 4)
        self.unused = nn.Linear(4, 4)
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(hidden=self.lookup(x))["logits"]  # type: ignore[no-any-return]


class Inner(nn.Module):
    """Takes its input by keyword and gives a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(4, 4)

    def forward(self, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.twice(self.twice(hidden)[:, :1])}


def test_modules_have_the_shapes_of_their_first_call(tmp_path: Path) -> None:
    assert _trained(Sometimes(), tmp_path / "a", torch.ones(6, 3, dtype=torch.int64)) == {
        "model": ((6, 3), (6, 1, 4)),
        "lookup": ((6, 3), (6, 3, 4)),
        "unused": (None, None),
        "inner": ((6, 3, 4), (6, 1, 4)),
        "inner.twice": ((6, 3, 4), (6, 3, 4)),
    }


def test_modules_in_a_compiled_region_have_no_shapes_and_those_around_have(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)))
    model[1].compile(backend="eager")
    found = _trained(model, tmp_path / "a", torch.ones(6, 2))
    assert found["0"] == ((6, 2), (6, 3))
    assert (found["1.0"], found["1.1"]) == ((None, None), (None, None))


def test_a_run_whose_table_is_damaged_is_continued_and_gets_a_new_one(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "a") as writer:
        writer.log({"loss": 1.0}, step=1)
    said = json.loads((tmp_path / "a/run.json").read_text())
    (tmp_path / "a/run.json").write_text(json.dumps({**said, "model": {"version": "\x1b"}}))
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sonde.watch(
        model, optimizer, run=tmp_path / "a", console="quiet", settings={"doctor": "thread"}, strict=True
    ) as watch:
        for _ in range(3):
            loss = model(torch.ones(4, 2)).mean()
            loss.backward()
            optimizer.step()
            watch.step(loss)
    assert [row.name for row in _model(tmp_path / "a").parameters] == ["weight", "bias"]
    assert not sonde.load(tmp_path / "a").events("monitor-problem")


class Reader(nn.Module):
    """Looks words up in a table whose name does not say that it is one."""

    def __init__(self) -> None:
        super().__init__()
        self.lookup = nn.Embedding(20, 8)
        nn.init.normal_(self.lookup.weight, std=0.01)
        self.out = nn.Linear(8, 4)


@pytest.mark.parametrize("doctor", ["thread", "process"])
def test_rules_are_told_the_table_live_as_in_replay(tmp_path: Path, doctor: Literal["thread", "process"]) -> None:
    torch.manual_seed(0)
    model = Reader()
    groups = [{"params": model.lookup.parameters(), "lr": 0.1}, {"params": model.out.parameters(), "lr": 1e-4}]
    optimizer = torch.optim.Adam(groups)
    with sonde.watch(
        model, optimizer, run=tmp_path / "a", console="quiet", settings={"doctor": doctor}, strict=True
    ) as watch:
        for _ in range(60):
            words = torch.randint(0, 20, (32,))
            loss = nn.functional.cross_entropy(model.out(model.lookup(words)), words % 4)
            torch.autograd.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            watch.step(loss)
    (found,) = [finding for finding in watch.findings() if finding.code == "ATT004"]
    assert found.where == ("lookup.weight",)
    assert _model(tmp_path / "a").by_name["lookup.weight"].kind is Kind.EMBEDDING
    again = [finding for finding in sonde.diagnose(tmp_path / "a") if finding.code == "ATT004"]
    assert [(one.first_step, one.where, one.message) for one in again] == [
        (found.first_step, found.where, found.message)
    ]
