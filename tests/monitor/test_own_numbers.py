"""Numbers that the training gives of its own: `watch.log`, `watch.evaluate`, and what is none."""

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sonde
from sonde.core.example_losses import MOST
from sonde.core.frames import Frame
from sonde.kernels.histograms import NUM_BINS
from sonde.monitor.watch import Watch
from sonde.sinks.selections import Selection, Sieve

from . import loops


def train(watch: Watch, net: nn.Module, optimizer: Any, num: int, **given: Any) -> None:
    for batch in loops.batches(num):
        loss = loops.loss_of(net, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(given.get("loss", loss))


def watched(run: Path, **settings: Any) -> tuple[Watch, nn.Module, Any]:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    settings = {"console": "quiet", "settings": {"doctor": "off"}, **settings}
    return sonde.watch(net, optimizer, run=run, **settings), net, optimizer


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_is_logged_belongs_to_the_last_step_that_was_closed(tmp_path: Path) -> None:
    watch, net, optimizer = watched(tmp_path / "run", strict=True)
    with watch:
        watch.log({"before": 1})
        for number in range(1, 6):
            train(watch, net, optimizer, 1)
            watch.log({"accuracy": number / 10})
            watch.log({"late": torch.tensor(number * 1.5), "val/f1": float(np.float32(number))})
    run = sonde.load(tmp_path / "run")
    for tag, factor in (("accuracy", 0.1), ("late", 1.5), ("val/f1", 1.0)):
        step, value, _ = run.series(tag)
        assert step.tolist() == [1, 2, 3, 4, 5]
        np.testing.assert_allclose(value, factor * step, rtol=1e-6)
    assert run.series("before").step.tolist() == [0]


def test_several_logs_of_a_step_start_no_branch_and_the_later_value_counts(tmp_path: Path) -> None:
    watch, net, optimizer = watched(tmp_path / "run", strict=True)
    with watch:
        train(watch, net, optimizer, 3)
        watch.log({"a": 1.0})
        watch.log({"a": 2.0, "b": float("nan")})
    run = sonde.load(tmp_path / "run")
    assert len(run.branches) == 1
    assert run.table(["a"]).to_pydict()["a"] == [2.0]
    assert np.isnan(run.last()["b"].value)


def test_logging_does_not_mix_with_what_the_watching_measures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watch, net, optimizer = watched(tmp_path / "run")
    with watch:
        for _ in range(4):
            train(watch, net, optimizer, 1)
            watch.log({"loss": -1.0, "grad/norm": -1.0, "lr@0": -1.0, "mine": 2.0})
    run = sonde.load(tmp_path / "run")
    assert (run.series("loss").value > 0).all()
    assert (run.series("grad/norm").value > 0).all()
    assert run.series("mine").value.tolist() == [2.0] * 4
    said = warnings_of(caplog)
    assert len(said) == 3  # each name once
    assert all("Sonde's own" in one for one in said)


@pytest.mark.parametrize(
    "given", [{"x": "high"}, {"bad tag!": 1.0}, {7: 1.0}, [("x", 1.0)], {"x": None}, {"x": object()}]
)
def test_what_is_no_number_by_name_costs_a_line_and_the_rest_is_kept(
    tmp_path: Path, given: Any, caplog: pytest.LogCaptureFixture
) -> None:
    watch, net, optimizer = watched(tmp_path / "run")
    with watch:
        train(watch, net, optimizer, 2)
        for _ in range(3):
            watch.log({**given, "good": 1.0} if isinstance(given, dict) else given)
        train(watch, net, optimizer, 1)
    run = sonde.load(tmp_path / "run")
    assert run.steps == 3
    assert ("good" in run.tags()) == isinstance(given, dict)
    assert "x" not in run.tags()
    said = warnings_of(caplog)
    assert len(said) == (0 if given == {"x": None} else 1)
    assert not any("Traceback" in one for one in said)


@pytest.mark.parametrize(
    "loss", ["0.3", b"1", [1.0], {"loss": 1.0}, object(), 1j], ids=lambda loss: type(loss).__name__
)
def test_a_loss_that_is_no_number_is_said_once_and_the_steps_count(
    tmp_path: Path, loss: Any, caplog: pytest.LogCaptureFixture
) -> None:
    watch, net, optimizer = watched(tmp_path / "run")
    with watch:
        train(watch, net, optimizer, 3, loss=loss)
        train(watch, net, optimizer, 1)
    run = sonde.load(tmp_path / "run")
    assert run.series("loss").step.tolist() == [4]
    assert run.series("grad/norm").step.tolist() == [1, 2, 3, 4]
    (said,) = warnings_of(caplog)
    assert "`loss` is no number" in said
    assert type(loss).__name__ in said
    assert [event.data["reason"] for event in run.events("misuse")] == [said]
    assert not run.events("monitor-problem")  # which is a finding about Sonde itself


def test_after_closing_all_calls_are_harmless_and_the_first_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch, net, optimizer = watched(tmp_path / "run")
    train(watch, net, optimizer, 2)
    watch.close()
    assert warnings_of(caplog) == []
    for _ in range(2):
        train(watch, net, optimizer, 2)
        watch.log({"a": 1})
        watch.evaluate(loss=1.0, losses=[1.0, 2.0])
        watch.epoch()
        watch.burst(3)
        watch.profile()
        watch.batch(torch.ones(3))
        watch.not_measured("a", "b")
        watch.close()
    assert warnings_of(caplog) == [f"{tmp_path / 'run'} is closed: `watch.step` and what else comes is not recorded."]
    assert sonde.load(tmp_path / "run").steps == 2


def test_a_forked_child_of_a_training_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    watch, net, optimizer = watched(tmp_path / "run")
    train(watch, net, optimizer, 1)
    if (child := os.fork()) == 0:
        try:
            watch.step(1.0)
            watch.log({"a": 1})
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    watch.close()
    assert capfd.readouterr().err == ""


def test_what_is_logged_and_evaluated_leaves_the_training_bit_identical(tmp_path: Path) -> None:
    def weights(run: Path | None) -> list[torch.Tensor]:
        torch.manual_seed(3)
        net = loops.model(dropout=0.3)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        watch = None if run is None else sonde.watch(net, optimizer, run=run, console="quiet", strict=True)
        for batch in loops.batches(60):
            loss = loops.loss_of(net, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if watch is not None:
                watch.step(loss)
                watch.log({"accuracy": loss, "noise": 1.0})
                watch.evaluate(losses=torch.ones(20), metrics={"f1": loss})
        if watch is not None:
            watch.close()
        return [*(p.detach().clone() for p in net.parameters()), torch.rand(3)]

    for bare, seen in zip(weights(None), weights(tmp_path / "run"), strict=True):
        assert torch.equal(bare, seen)


# Evaluations.


@pytest.mark.parametrize("method", ["evaluate", "validation"])
def test_an_evaluation_keeps_the_loss_of_each_example(tmp_path: Path, method: str) -> None:
    watch, net, optimizer = watched(tmp_path / "run", strict=True)
    wanted: list[tuple[int, Any]] = []
    with watch:
        for number, losses in enumerate((torch.rand(50), np.random.default_rng(0).random(50), [0.5, 1.5]), start=1):
            train(watch, net, optimizer, 1)
            getattr(watch, method)(losses=losses, metrics={"f1": 0.5})
            wanted.append((number, np.asarray(losses, np.float32)))
    run = sonde.load(tmp_path / "run")
    found = run.example_losses()
    assert [one.step for one in found] == [step for step, _ in wanted]
    for one, (_, losses) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.value, losses)
    np.testing.assert_allclose(run.series("val/loss").value, [losses.mean() for _, losses in wanted], rtol=1e-6)
    assert run.series("val/f1").value.tolist() == [0.5] * 3
    assert "val/losses" not in run.histogram_tags()


def test_the_loss_that_is_given_goes_before_the_mean(tmp_path: Path) -> None:
    watch, net, optimizer = watched(tmp_path / "run", strict=True)
    with watch:
        train(watch, net, optimizer, 1)
        watch.evaluate(loss=9.0, losses=[1.0, 2.0])
    assert sonde.load(tmp_path / "run").series("val/loss").value.tolist() == [9.0]


@pytest.mark.parametrize("losses", [["low", 1.0], [1.0], [], [[1.0], [1.0, 2.0]], torch.zeros(MOST + 1)])
def test_losses_that_cannot_be_kept_cost_a_line_and_the_rest_of_the_evaluation_is(
    tmp_path: Path, losses: Any, caplog: pytest.LogCaptureFixture
) -> None:
    watch, net, optimizer = watched(tmp_path / "run")
    with watch:
        train(watch, net, optimizer, 1)
        watch.evaluate(loss=3.0, losses=losses)
    run = sonde.load(tmp_path / "run")
    assert run.example_losses() == []
    assert run.series("val/loss").value.tolist() == [3.0]
    (said,) = warnings_of(caplog)
    assert "losses" in said


def test_losses_with_nan_and_those_of_a_graph_are_kept_as_they_are(tmp_path: Path) -> None:
    watch, net, optimizer = watched(tmp_path / "run", strict=True)
    with watch:
        train(watch, net, optimizer, 1)
        each = torch.tensor([1.0, float("nan"), float("inf")], requires_grad=True) * 2
        watch.evaluate(losses=each)
        each.sum().backward()  # type: ignore[no-untyped-call]
    (found,) = sonde.load(tmp_path / "run").example_losses()
    np.testing.assert_array_equal(found.value, np.array([2, np.nan, np.inf], np.float32))


def test_loggers_do_not_take_losses_of_examples_for_a_histogram() -> None:
    from sonde.core.example_losses import columns_of

    frame = Frame(columns_of(NUM_BINS), 1, 0.0, np.ones(NUM_BINS, np.float32))
    assert Sieve(Selection())(frame) is None
