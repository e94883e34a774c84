"""Sonde comes and goes without a trace, and its faults are its own."""

import copy
import gc
import io
import logging
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad

import sonde
from sonde.core.records import Ending
from sonde.monitor.watch import Watch, watch

from . import loops


def _train(watch: Watch, net: nn.Module, optimizer: torch.optim.Optimizer, num: int, *, seed: int = 2) -> None:
    for batch in loops.batches(num, seed=seed):
        optimizer.zero_grad()
        loss = loops.loss_of(net, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        watch.step(loss)


def _functions() -> list[Any]:
    """What Sonde replaces in torch while it watches."""
    return [
        vars(clip_grad)["_clip_grads_with_norm_"],
        torch.nn.utils.clip_grad_value_,
        torch.amp.GradScaler.step,
    ]


def _hooks(optimizer: torch.optim.Optimizer) -> int:
    """How many hooks of ours run in a step, seen from outside: by what they are called in a profile."""
    found: set[str] = set()

    def trace(frame: Any, event: str, _: Any) -> None:
        if event == "call" and f"{Path('sonde') / 'monitor'}" in frame.f_code.co_filename:
            found.add(frame.f_code.co_name)

    sys.setprofile(trace)
    try:
        optimizer.step()
    finally:
        sys.setprofile(None)
    return len(found)


def test_closing_removes_hooks_functions_and_threads(tmp_path: Path) -> None:
    functions, threads = _functions(), set(threading.enumerate())
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = (sys.excepthook, _hooks(optimizer))
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        assert _functions() != functions
        _train(watch, net, optimizer, 3)
        assert _hooks(optimizer) > 0
    assert _functions() == functions
    assert set(threading.enumerate()) == threads
    assert (sys.excepthook, _hooks(optimizer)) == before
    watch.close()
    watch.step(1.0)  # too late, and harmless
    assert sonde.load(tmp_path / "run").steps == 3


@pytest.mark.parametrize("first", [0, 1])
def test_two_watches_may_be_closed_in_any_order(tmp_path: Path, first: int) -> None:
    functions = _functions()
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watches = [loops.watching(net, optimizer, tmp_path / str(i)) for i in range(2)]
    for batch in loops.batches(4):
        optimizer.zero_grad()
        loss = loops.loss_of(net, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        for each in watches:
            each.step(loss)
    watches[first].close()
    _train(watches[1 - first], net, optimizer, 2)
    watches[1 - first].close()
    assert _functions() == functions
    assert sonde.load(tmp_path / str(first)).steps == 4
    assert sonde.load(tmp_path / str(1 - first)).steps == 6
    np.testing.assert_allclose(loops.values(tmp_path / "0", "clip/limit"), 0.1, rtol=1e-6)


def test_wrapper_that_somebody_put_around_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    calls = []
    with monkeypatch.context() as patch, loops.watching(net, optimizer, tmp_path / "run") as watch:
        ours = torch.nn.utils.clip_grad_value_

        def theirs(*args: Any) -> None:
            calls.append(args)
            ours(*args)

        patch.setattr(torch.nn.utils, "clip_grad_value_", theirs)
        loops.loss_of(net, next(loops.batches(1))).backward()
        watch.close()
        assert torch.nn.utils.clip_grad_value_ is theirs
        torch.nn.utils.clip_grad_value_(list(net.parameters()), 1.0)
    assert len(calls) == 1
    torch.nn.utils.clip_grad_value_ = vars(clip_grad)["clip_grad_value_"]


def test_nothing_of_the_training_is_kept_alive(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    watch = loops.watching(net, optimizer, tmp_path / "run")
    _train(watch, net, optimizer, 3)
    watch.close()
    alive: list[weakref.ref[Any]] = [
        weakref.ref(net),
        weakref.ref(optimizer),
        weakref.ref(net.get_parameter("0.weight")),
    ]
    del net, optimizer
    gc.collect()
    assert [each() for each in alive] == [None, None, None]
    alone = weakref.ref(watch)
    del watch
    gc.collect()
    assert alone() is None


def test_watched_model_and_optimizer_are_copied_and_saved_as_if_unwatched(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        _train(watch, net, optimizer, 3)
        twin, twin_optimizer = copy.deepcopy((net, optimizer))
        pickled = pickle.dumps((net, optimizer, optimizer.state_dict(), net.state_dict()))
        assert b"sonde" not in pickled
        buffer = io.BytesIO()
        torch.save(net, buffer)
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
        again, again_optimizer, *_ = pickle.loads(pickled)
        for other, its_optimizer in ((twin, twin_optimizer), (again, again_optimizer)):
            loops.loss_of(other, next(loops.batches(1))).backward()
            its_optimizer.step()
            assert _hooks(its_optimizer) == 0
        watch.step(1.0)  # the steps of copies are not ours
    assert sonde.load(tmp_path / "run").steps == 3
    assert b"sonde" not in buffer.getvalue()
    torch.load(tmp_path / "checkpoint.pt")


def test_exception_in_the_loop_is_an_event_at_its_step(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def crash() -> None:
        with loops.watching(net, optimizer, tmp_path / "run") as watch:
            _train(watch, net, optimizer, 50)
            raise ZeroDivisionError("the batch is empty")

    with pytest.raises(ZeroDivisionError):
        crash()
    run = sonde.load(tmp_path / "run")
    assert run.state.ending is Ending.CRASHED
    assert run.steps == 50
    (event,) = run.events("exception")
    assert event.step == 50
    assert "the batch is empty" in event.data["reason"]


def test_exception_inside_the_optimizer_does_not_confuse_the_next_step(tmp_path: Path) -> None:
    class Moody(torch.optim.SGD):
        mood = "good"

        def step(self, closure: Any = None) -> Any:
            if self.mood == "bad":
                raise RuntimeError("not now")
            return super().step(closure)

    net = loops.model()
    optimizer = Moody(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        _train(watch, net, optimizer, 2)
        optimizer.mood = "bad"
        with pytest.raises(RuntimeError, match="not now"):
            optimizer.step()
        watch.step(1.0)  # the batch was given up
        optimizer.mood = "good"
        _train(watch, net, optimizer, 2)
    assert len(loops.values(tmp_path / "run", "grad/norm")) == 4
    assert len(loops.values(tmp_path / "run", "update/norm@0.weight")) == 4


def test_fault_of_ours_is_one_warning_and_the_step_still_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    unreadable: Any = "three"
    with caplog.at_level(logging.WARNING), watch(net, optimizer, run=tmp_path / "run") as watched:
        for batch in loops.batches(4):
            optimizer.zero_grad()
            loops.loss_of(net, batch).backward()
            optimizer.step()
            watched.step(unreadable)
    assert len([record for record in caplog.records if record.name.startswith("sonde")]) == 1
    assert len(loops.values(tmp_path / "run", "grad/norm")) == 4
    with pytest.raises(ValueError), loops.watching(net, optimizer, tmp_path / "strict") as strict:
        strict.step(unreadable)


def test_name_that_cannot_be_a_tag_costs_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING), watch(net, optimizer, run=tmp_path / "run") as watched:
        for i in range(3):
            optimizer.step()
            watched.step(float(i), parts={"": 1.0, "task": 2.0})
            watched.evaluate(metrics={"top 5": 0.9, "accuracy": 0.5})
    said = [record.getMessage() for record in caplog.records if record.name.startswith("sonde")]
    assert len(said) == 2  # each once
    assert "'loss/part@'" in said[0]
    assert "'val/top 5'" in said[1]
    assert loops.values(tmp_path / "run", "loss") == [0, 1, 2]
    assert loops.values(tmp_path / "run", "loss/part@task") == [2, 2, 2]
    assert loops.values(tmp_path / "run", "val/accuracy") == [0.5] * 3


def test_model_may_change_its_type_while_it_is_watched(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        _train(watch, net, optimizer, 2)
        optimizer.zero_grad()
        net.double()
        for x, y in loops.batches(2):
            loss: Any = nn.functional.cross_entropy(net(x.double()), y)
            loss.backward()
            optimizer.step()
            watch.step(loss)
    for tag in ("grad/norm", "weight/norm@0.weight", "update/norm@0.weight"):
        assert len(loops.values(tmp_path / "run", tag)) == 4


def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    net = loops.model()
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    wrong: Any = "adam"
    with pytest.raises(TypeError, match=r"optimizer\['G'\]"):
        watch(net, {"G": wrong}, run=tmp_path / "run")
    with pytest.raises(ValueError, match="budget"):
        watch(net, optimizer, run=tmp_path / "run", budget=0)
    assert not (tmp_path / "run").exists()


def test_parameter_that_cannot_be_measured_disturbs_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = loops.model()
    net.register_parameter("table", nn.Parameter(torch.arange(3), requires_grad=False))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING), watch(net, optimizer, run=tmp_path / "run", cadence=loops.ALWAYS) as watched:
        _train(watched, net, optimizer, 3)
    assert not [record for record in caplog.records if record.name.startswith("sonde")]
    assert [e.data["tag"] for e in sonde.load(tmp_path / "run").events("not-measured")].count("weight/*") == 1
    assert len(loops.values(tmp_path / "run", "grad/norm")) == 3
    assert len(loops.values(tmp_path / "run", "weight/norm@0.weight")) == 3
    assert len(loops.values(tmp_path / "run", "update/norm@0.weight")) == 3


def _resumable() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = loops.model()
    return net, torch.optim.Adam(net.parameters(), lr=0.01)


@pytest.mark.parametrize("extra", [0, 7], ids=["from the end", "from an older checkpoint"])
def test_resumed_run_goes_on_without_a_jump(tmp_path: Path, extra: int) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    net, optimizer = _resumable()
    with loops.watching(net, optimizer, whole) as watch:
        _train(watch, net, optimizer, 20)
        _train(watch, net, optimizer, 10, seed=5)

    net, optimizer = _resumable()
    with loops.watching(net, optimizer, parts) as watch:
        _train(watch, net, optimizer, 20)
        checkpoint = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "watch": watch.state_dict()}
        torch.save(checkpoint, tmp_path / "checkpoint.pt")
        _train(watch, net, optimizer, extra, seed=9)
    net, optimizer = _resumable()
    with loops.watching(net, optimizer, parts) as watch:
        saved = torch.load(tmp_path / "checkpoint.pt")  # weights_only: plain numbers
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        watch.load_state_dict(saved["watch"])
        _train(watch, net, optimizer, 10, seed=5)
    for tag in ("loss", "loss/ema", "loss/variance", "grad/norm", "update/ratio@0.weight"):
        np.testing.assert_array_equal(loops.values(parts, tag), loops.values(whole, tag))
        assert len(loops.values(parts, tag)) == 30
    assert len(sonde.load(parts).branches) == (2 if extra else 1)


def test_going_back_within_one_session_is_a_branch(tmp_path: Path) -> None:
    net, optimizer = _resumable()
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        _train(watch, net, optimizer, 5)
        saved = watch.state_dict()
        _train(watch, net, optimizer, 5)
        loops.loss_of(net, next(loops.batches(1))).backward()
        optimizer.step()  # of an iteration that was given up
        watch.load_state_dict(saved)
        _train(watch, net, optimizer, 3)
    run = sonde.load(tmp_path / "run")
    assert run.steps == 8
    assert len(run.branches) == 2
    assert len(loops.values(tmp_path / "run", "loss/ema")) == 8


def test_skipped_and_micro_steps_are_counted_over_sessions(tmp_path: Path) -> None:
    net, optimizer = _resumable()
    with loops.watching(net, optimizer, tmp_path / "a") as watch:
        watch.step(1.0)
        watch.step(1.0)
        optimizer.step()
        watch.step(1.0)
        saved = watch.state_dict()
    with loops.watching(net, optimizer, tmp_path / "b") as watch:
        watch.load_state_dict(saved)
        watch.step(1.0)
        state = watch.state_dict()
    assert (saved["step"], saved["micro"], state["step"], state["micro"]) == (1, 2, 1, 3)


def test_state_of_another_version_is_refused(tmp_path: Path) -> None:
    net, optimizer = _resumable()
    with loops.watching(net, optimizer, tmp_path / "run") as watch, pytest.raises(ValueError, match="version"):
        watch.load_state_dict({"version": 99})


_SCRIPT = """
    import sys
    import threading
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from sonde.core.cadences import every
    from sonde.probes.cadences import Cadences
    from sonde.monitor.watch import watch

    def main(run, context):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        net = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        data = TensorDataset(torch.randn(24, 4), torch.randint(0, 2, (24,)))
        cadence = Cadences(layers=every(1), rotating=every(1))
        watched = watch(net, optimizer, run=run, cadence=cadence, console="quiet", strict=True)
        workers = {} if context == "none" else {
            "num_workers": 1, "multiprocessing_context": context, "persistent_workers": True
        }
        loader = DataLoader(data, batch_size=8, shuffle=True, **workers)
        for epoch in range(2):
            for x, y in watched.data(loader):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(x), y)
                loss.backward()
                optimizer.step()
                watched.step(loss)
        END

    if __name__ == "__main__":
        main(*sys.argv[1:])
        # No loader waits for the threads that fed its workers. One that lets go of a semaphore while Python ends may
        # be stopped before it has told Python's resource tracker, which then warns that the semaphore is gone.
        for thread in threading.enumerate():
            if thread.name == "QueueFeederThread":
                thread.join()
"""


def _run_script(tmp_path: Path, end: str, context: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(_SCRIPT).replace("END", end))
    command = [sys.executable, "-W", "error", str(script), str(tmp_path / "run"), context]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_of_a_data_loader_do_not_meddle_with_the_run(tmp_path: Path, context: str) -> None:
    result = _run_script(tmp_path, "watched.close()", context)
    assert (result.returncode, result.stderr) == (0, "")
    run = sonde.load(tmp_path / "run")
    assert run.state.ending is Ending.FINISHED
    assert len(loops.values(tmp_path / "run", "loss")) == 6


@pytest.mark.parametrize(
    ("end", "ending", "status"),
    [
        ("pass", Ending.EXITED, 0),
        ("raise ValueError('no more')", Ending.CRASHED, 1),
    ],
    ids=["forgotten", "crashed"],
)
def test_run_that_was_never_closed_keeps_all_rows(tmp_path: Path, end: str, ending: Ending, status: int) -> None:
    result = _run_script(tmp_path, end, "none")
    assert result.returncode == status, result.stderr
    run = sonde.load(tmp_path / "run")
    assert run.state.ending is ending
    for tag in ("loss", "grad/norm", "grad/norm@weight", "update/ratio@weight"):
        assert len(loops.values(tmp_path / "run", tag)) == 6
