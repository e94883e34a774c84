"""Loops over what the real `Accelerator` prepared: accumulation, its log, its checkpoints, several processes."""

# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found, name-defined"

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import sonde

from .trainers import assert_no_jump, assert_same, called, launched, steps, strictly, values

accelerate = pytest.importorskip("accelerate")

from sonde.integrations.accelerate import watch_prepared  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


class Training:
    """A loop as people write it; watched where `run` is given."""

    def __init__(self, run: Path | None, **settings: Any) -> None:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        self.accelerator = accelerate.Accelerator(cpu=True, **settings)
        torch.manual_seed(0)
        self.plain = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 2))
        optimizer = torch.optim.AdamW(self.plain.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        x = torch.randn(50, 8)
        data = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8)
        self.model, self.optimizer, self.scheduler, self.data = self.accelerator.prepare(
            self.plain, optimizer, scheduler, data
        )
        self.watch = None
        if run is not None:
            self.watch = watch_prepared(self.accelerator, self.model, self.optimizer, run, watch=strictly)
        self.losses: list[float] = []
        self.evaluations: list[float] = []
        self.rates: list[float] = []

    def epoch(self) -> None:
        for x, y in self.data if self.watch is None else self.watch.data(self.data):
            with self.accelerator.accumulate(self.model):
                loss = functional.cross_entropy(self.model(x), y)
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.rates.append(self.scheduler.get_last_lr()[0])
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 0.5)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
            self.losses.append(loss.item())
            if self.watch is not None:
                self.watch.step(loss)
        self.evaluations.append(self.losses[-1] / 2)
        self.accelerator.log({"train_loss": 7.0, "eval_loss": self.evaluations[-1], "eval_acc": 0.5}, step=99)
        if self.watch is not None:
            self.watch.epoch()


def test_losses_rates_epochs_and_evaluations_are_those_of_the_loop(tmp_path: Path) -> None:
    run, training = tmp_path / "run", Training(tmp_path / "run")
    for _ in range(2):
        training.epoch()
    training.accelerator.end_training()
    assert values(run, "loss") == pytest.approx(training.losses, rel=1e-6)
    assert values(run, "lr") == pytest.approx(training.rates)
    assert values(run, "clip/limit") == [0.5] * 14
    assert values(run, "val/loss") == pytest.approx(training.evaluations, rel=1e-6)
    assert steps(run, "val/acc") == steps(run, "epoch") == [7, 14]
    assert not [tag for tag in sonde.load(run).tags() if "train" in tag]
    assert sonde.load(run).state.ending == "finished"


def test_an_accumulated_step_has_the_mean_of_its_batches(tmp_path: Path) -> None:
    run, training = tmp_path / "run", Training(tmp_path / "run", gradient_accumulation_steps=3)
    training.epoch()
    training.accelerator.end_training()
    losses = training.losses
    of_steps = [losses[:3], losses[3:6], losses[6:]]
    assert values(run, "loss") == pytest.approx([sum(some) / len(some) for some in of_steps], rel=1e-6)
    assert values(run, "loss/num_micro") == [3, 3, 1]


@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 3}, {"mixed_precision": "bf16"}], ids=str)
def test_weights_are_bit_identical_with_and_without(tmp_path: Path, settings: dict[str, Any]) -> None:
    trained = []
    for run in (tmp_path / "run", None):
        training = Training(run, **settings)
        for _ in range(2):
            training.epoch()
        training.accelerator.end_training()
        trained.append(training)
    assert_same(trained[0].plain, trained[1].plain)
    assert trained[0].losses == trained[1].losses


def test_what_save_state_kept_goes_on_without_a_jump(tmp_path: Path) -> None:
    straight = Training(tmp_path / "straight")
    for _ in range(3):
        straight.epoch()
    straight.accelerator.end_training()
    run = Training(tmp_path / "run")
    run.epoch()
    run.accelerator.save_state(str(tmp_path / "kept"))
    run.epoch()  # which is lost
    run.accelerator.end_training()
    resumed = Training(tmp_path / "run")
    resumed.accelerator.load_state(str(tmp_path / "kept"))
    for _ in range(2):
        resumed.epoch()
    resumed.accelerator.end_training()
    assert_same(resumed.plain, straight.plain)
    assert_no_jump(
        tmp_path / "run", tmp_path / "straight", ["loss", "loss/ema", "lr", "grad/norm", "val/loss", "epoch"]
    )
    assert [(b.parent, b.fork_step) for b in sonde.load(tmp_path / "run").branches] == [(None, 0), (0, 8)]


def test_an_exception_closes_the_run_as_crashed(tmp_path: Path) -> None:
    training = Training(tmp_path / "run")
    training.data = [(torch.randn(8, 8), torch.zeros(8).long()), (torch.randn(8, 7), torch.zeros(8).long())]
    assert training.watch is not None
    with pytest.raises(RuntimeError, match="shapes"), training.watch:
        training.epoch()
    training.accelerator.end_training()
    state = sonde.load(tmp_path / "run").state
    assert (state.ending, steps(tmp_path / "run", "loss")) == ("crashed", [1])
    assert state.reason.startswith("RuntimeError: ")


def test_nothing_of_sonde_is_called_after_the_training(tmp_path: Path) -> None:
    training = Training(tmp_path / "run")
    training.epoch()
    training.accelerator.end_training()

    def step() -> None:
        for x, y in training.data:
            training.accelerator.backward(functional.cross_entropy(training.model(x), y))
            training.optimizer.step()

    assert called(step) == set()


def test_several_models_and_optimisers_are_given_by_name(tmp_path: Path) -> None:
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True)
    first, second = nn.Linear(4, 4), nn.Linear(4, 1)
    prepared = accelerator.prepare(*(torch.optim.SGD(net.parameters(), lr=0.1) for net in (first, second)))
    models, optimizers = {"G": first, "D": second}, dict(zip("GD", prepared, strict=True))
    watch = watch_prepared(accelerator, models, optimizers, tmp_path / "run", watch=strictly)
    for _ in range(3):
        loss = second(first(torch.randn(4, 4))).square().mean()
        accelerator.backward(loss)
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad()
        watch.step(loss)
    accelerator.end_training()
    assert len(values(tmp_path / "run", "grad/norm@G")) == len(values(tmp_path / "run", "lr@D")) == 3


# Several processes.

PROGRAM = """
import json, torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from sonde.integrations.accelerate import watch_prepared

def train(run, num, resume=None, save=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    x = torch.randn(64, 8)
    data = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
    watch = watch_prepared(accelerator, model, optimizer, run) if run else None
    if resume:
        accelerator.load_state(resume)
    losses = []
    for _ in range(num):
        for x, y in data:
            loss = functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if watch:
                watch.step(loss)
        accelerator.log({"eval_loss": losses[-1]})
    if save:
        accelerator.save_state(save)
    if watch:
        watch.close()
    total = sum(p.double().sum().item() for p in model.parameters())
    accelerator.free_memory()
    accelerator._custom_objects.clear()
    accelerator.trackers.clear()
    return {"losses": losses, "weights": total.hex()}

accelerator = Accelerator(cpu=True)
results = [train(None, 2), train("whole", 2), train("run", 1, save="kept"), train("run", 1, resume="kept")]
with open(f"{accelerator.process_index}.json", "w") as file:
    json.dump(results, file)
accelerator.end_training()
"""


def test_two_processes_record_their_own_losses_train_as_without_and_resume(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    # `accelerate launch` starts several processes on CPUs through MPI alone; torchrun is its other way.
    start = (sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    launched(*start, "train.py", folder=tmp_path)
    for rank, inside in enumerate(("", "ranks/1")):
        bare, watched, first, second = json.loads((tmp_path / f"{rank}.json").read_text())
        assert watched == bare
        assert first["losses"] + second["losses"] == bare["losses"]
        assert second["weights"] == bare["weights"]
        run, straight = tmp_path / "run" / inside, tmp_path / "whole" / inside
        assert values(straight, "loss") == pytest.approx(watched["losses"], rel=1e-6)
        assert_no_jump(run, straight, ["loss", "lr", "grad/norm"])
    assert_no_jump(tmp_path / "run", tmp_path / "whole", ["loss/ema", "val/loss"])
