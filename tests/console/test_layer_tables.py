"""The verbose form, from rows made by hand and from a training."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.console.test_board import row

import sonde
from sonde.console.layer_tables import LayerTables
from sonde.core.frames import MISSING, Detail, Frame
from sonde.core.quantities import number


def of_layers(table: str, step: int, values: dict[str, float]) -> Frame:
    return row(table, step, values, detail=Detail.LAYER)


def gradients(step: int, name: str = "net.0.weight") -> Frame:
    return of_layers("gradients", step, {f"grad/norm@{name}": step, f"grad/mean@{name}": 0.5, f"grad/std@{name}": 2.0})


def test_every_hundredth_step_has_a_table_with_the_newest_number_of_each_parameter() -> None:
    said: list[str] = []
    tables = LayerTables(said.append)
    for step in range(1, 203):
        tables.take(row("step", step, {"loss": 1.0}))
        if step == 93:
            tables.take(of_layers("updates-1", step, {"update/ratio@net.0.weight": 1e-3}))
            tables.take(gradients(step, "net.2.weight"))
        if step % 10 == 0:
            tables.take(gradients(step))
    first, second = said
    assert first.splitlines() == [
        "Sonde: gradients, step 100",
        "                norm  mean  std  update ratio  measured at",
        "  net.0.weight   100   0.5    2         0.001       93-100",
        "  net.2.weight    93   0.5    2             –           93",
    ]
    assert second.splitlines()[0] == "Sonde: gradients, step 200"
    assert "  net.0.weight   200 " in second


def test_the_table_of_the_last_step_is_said_at_the_end_and_once() -> None:
    said: list[str] = []
    tables = LayerTables(said.append)
    for step in (99, 100):
        tables.take(row("step", step, {"loss": 1.0}))
        tables.take(gradients(step))
    assert not said
    tables.rest()
    tables.rest()
    assert len(said) == 1


def test_update_ratios_out_of_all_proportion_are_named_the_largest_first() -> None:
    said: list[str] = []
    tables = LayerTables(said.append)
    ratios = {"a": 0.01, "b": 0.25, "c": 1e-9, "d": float(MISSING), "e": 4.0}
    tables.take(row("step", 100, {"loss": 1.0}))
    tables.take(of_layers("updates", 100, {f"update/ratio@{name}": ratio for name, ratio in ratios.items()}))
    tables.rest()
    assert said[-1] == "Sonde: ! update ratio outside 1e-7 to 0.1, step 100: e 4, b 0.25, c 1e-9"


def test_a_name_does_not_steer_the_terminal() -> None:
    said: list[str] = []
    tables = LayerTables(said.append)
    tables.take(row("step", 100, {"loss": 1.0}))
    tables.take(gradients(100, "evil\u202ename"))
    tables.rest()
    assert "\u202e" not in said[0]


def test_a_verbose_training_prints_the_numbers_that_it_records(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(16, 4)
    with sonde.watch(model, optimizer, run=tmp_path / "run", console="verbose", settings={"doctor": "off"}) as watch:
        for _ in range(1000):
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
    lines = capfd.readouterr().err.splitlines()
    assert sum(line.startswith("Sonde: gradients, step ") for line in lines) == 10
    (start,) = [i for i, line in enumerate(lines) if line == "Sonde: distribution of gradients, step 1,000"]
    heading, *parameters = [line.split() for line in lines[start + 1 : start + 6]]
    assert heading == ["min", "p25", "median", "p75", "p95", "max", "measured", "at"]
    assert [words[0] for words in parameters] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    run = sonde.load(tmp_path / "run")
    for name, *printed, _ in parameters:
        stored = [run.series(f"grad/{what}@{name}").value[-1] for what in ("min", "p25", "p50", "p75", "p95", "max")]
        assert printed == [number(value) for value in np.array(stored).tolist()]
