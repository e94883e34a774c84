"""A doctor whose process is killed or stopped: nobody waits for it, and the run says what was not judged."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import sonde
from sonde.core.records import Ending
from sonde.monitor.watch import Watch, watch

from ..loops import batches, loss_of, model
from .processes import children

# A generous limit that tells a hang from a busy machine: four waits for an answer that never comes took two minutes.
_LONGEST_S = 20.0


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


class Training:
    """A small one, with a doctor in a process of its own."""

    def __init__(self, run: Path) -> None:
        self.net = model()
        self._optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)
        before = children()
        self.watch: Watch = watch(self.net, self._optimizer, run=run, console="quiet", settings={"doctor": "process"})
        (self.doctor,) = children() - before

    def train(self, steps: int) -> None:
        for batch in batches(steps):
            loss = loss_of(self.net, batch)
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
            self.watch.step(loss)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_checkpoints_and_the_end_do_not_wait_for_a_doctor_that_does_not_answer(
    tmp_path: Path, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(tmp_path / "run")
    training.train(20)
    os.kill(training.doctor, number)
    with at_most(_LONGEST_S):
        for _ in range(3):
            training.train(1)
            saved = training.watch.state_dict()
            assert (saved["step"], saved["doctor_step"]) == (saved["iteration"], 0)
        training.watch.close()
    assert training.doctor not in children()
    run = sonde.load(tmp_path / "run")
    assert (run.state.ending, run.series("loss").step.tolist()) == (Ending.FINISHED, list(range(1, 24)))
    said = "process ended" if number == signal.SIGKILL else "process is stopped"
    (problem,) = [event.data["reason"] for event in run.events("monitor-problem")]
    assert said in problem
    assert len([record for record in caplog.records if said in record.getMessage()]) == 1


def test_a_checkpoint_has_what_the_doctor_last_answered_and_the_next_session_says_so(tmp_path: Path) -> None:
    training = Training(tmp_path / "run")
    training.train(40)
    saved = training.watch.state_dict()
    deadline = time.monotonic() + 60
    while saved["doctor"] is None:  # it may still be starting
        assert time.monotonic() < deadline
        saved = training.watch.state_dict()
    assert saved["doctor_step"] == 40
    os.kill(training.doctor, signal.SIGSTOP)
    training.train(10)
    late = training.watch.state_dict()
    assert (late["step"], late["doctor_step"], late["doctor"]) == (50, 40, saved["doctor"])
    training.watch.close()
    again = Training(tmp_path / "run")
    again.watch.load_state_dict(late)
    again.train(30)
    again.watch.close()
    (event,) = sonde.load(tmp_path / "run").events("not-measured")[-1:]
    assert (event.step, event.data["tag"]) == (50, "monitor/judged")
    assert "what it knew at step 40" in event.data["reason"]
    assert not sonde.load(tmp_path / "run").events("monitor-problem")[1:]  # that of the first session alone
