"""The callback in the real Lightning: fit, evaluate, checkpoint, resume, several optimisers, several processes."""

# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found, name-defined"

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import sonde

from .trainers import assert_no_jump, assert_same, called, launched, steps, strictly, values

pl = pytest.importorskip("lightning.pytorch")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.plugins.precision import MixedPrecision  # noqa: E402

from sonde.integrations.lightning import SondeCallback  # noqa: E402

# Lightning warns about loaders without workers, about logging and checkpoints, and uses what torch is about to drop.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]


class Classifier(pl.LightningModule):
    """Keeps what it saw."""

    def __init__(self, *, dropout: float = 0.0, lbfgs: bool = False) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(dropout), nn.ReLU(), nn.Linear(16, 2))
        self.lbfgs = lbfgs
        self.losses: list[float] = []
        self.evaluations: list[dict[str, float]] = []
        self.skips: frozenset[int] = frozenset()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor | None:
        if batch_idx in self.skips:
            return None
        loss = functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        logits = self.net(batch[0])
        self.log("val_loss", functional.cross_entropy(logits, batch[1]))
        self.log("val_acc/top 1", (logits.argmax(1) == batch[1]).float().mean())

    def on_validation_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.evaluations.append({name: float(value) for name, value in self.trainer.callback_metrics.items()})

    def configure_optimizers(self) -> Any:
        if self.lbfgs:
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


def loader(num: int = 50, *, shuffle: bool = False) -> Any:
    generator = torch.Generator().manual_seed(num)
    x = torch.randn(num, 8, generator=generator)
    return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8, shuffle=shuffle)


def trainer(folder: Path, *callbacks: Any, **settings: Any) -> Any:
    plain = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return pl.Trainer(
        **{**plain, "max_epochs": 2, "default_root_dir": folder, "callbacks": list(callbacks), **settings}
    )


def fit(folder: Path, *callbacks: Any, model: Any = None, ckpt_path: Any = None, **settings: Any) -> Any:
    torch.manual_seed(0)
    model = Classifier(dropout=0.2) if model is None else model
    trainer(folder, *callbacks, **settings).fit(
        model, loader(shuffle=ckpt_path is None), loader(20), ckpt_path=ckpt_path
    )
    return model


def test_losses_rates_epochs_and_evaluations_are_those_of_the_trainer(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = fit(tmp_path, SondeCallback(run, watch=strictly))
    assert values(run, "loss") == pytest.approx(model.losses, rel=1e-6)
    assert values(run, "lr") == pytest.approx([1e-2] * 7 + [5e-3] * 7)
    assert steps(run, "epoch") == steps(run, "val/loss") == [7, 14]
    assert values(run, "epoch/samples") == [50, 50]
    assert values(run, "val/loss") == pytest.approx([found["val_loss"] for found in model.evaluations], rel=1e-6)
    assert values(run, "val/acc/top_1") == pytest.approx([found["val_acc/top 1"] for found in model.evaluations])
    assert len(values(run, "time/data")) == 14
    assert sonde.load(run).state.ending == "finished"
    assert not [tag for tag in sonde.load(run).tags() if "train_loss" in tag]


def test_an_accumulated_step_has_the_mean_of_its_batches_even_where_the_last_has_fewer(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = fit(tmp_path, SondeCallback(run, watch=strictly), accumulate_grad_batches=3)
    of_steps = [
        model.losses[7 * epoch + first : 7 * epoch + last]
        for epoch in (0, 1)
        for first, last in ((0, 3), (3, 6), (6, 7))
    ]
    assert values(run, "loss") == pytest.approx([sum(some) / len(some) for some in of_steps], rel=1e-6)
    assert values(run, "loss/num_micro") == [3, 3, 1, 3, 3, 1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"accumulate_grad_batches": 3, "gradient_clip_val": 0.3},
        {"precision": "bf16-mixed", "gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"},
        {"model": "lbfgs"},
    ],
    ids=["plain", "accumulated", "bf16", "lbfgs"],
)
def test_weights_are_bit_identical_with_and_without(tmp_path: Path, settings: dict[str, Any]) -> None:
    models = []
    for callbacks in ([SondeCallback(tmp_path / "run", watch=strictly)], []):
        torch.manual_seed(0)
        lbfgs = settings.get("model") == "lbfgs"
        model = Classifier(dropout=0.2, lbfgs=lbfgs)
        models.append(fit(tmp_path, *callbacks, **{**settings, "model": model}))
    assert_same(*models)
    assert models[0].losses == models[1].losses


def test_a_clip_inside_the_closure_is_seen(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(tmp_path, SondeCallback(run, watch=strictly), gradient_clip_val=0.3)
    assert values(run, "clip/limit") == pytest.approx([0.3] * 14)
    assert max(values(run, "grad/norm")) > 0.3
    assert max(values(run, "grad/norm_applied")) == pytest.approx(0.3, rel=1e-3)


@pytest.mark.parametrize("manual", [False, True])
def test_losses_under_a_gradient_scaler_are_unscaled(tmp_path: Path, manual: bool) -> None:
    run = tmp_path / "run"
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    model = OneByHand() if manual else Classifier()
    fit(tmp_path, SondeCallback(run, watch=strictly), model=model, plugins=[plugin])
    assert values(run, "loss") == pytest.approx(model.losses, rel=1e-3)
    assert values(run, "amp/scale") == [1024.0] * len(model.losses)


def test_a_skipped_batch_is_no_loss(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = Classifier()
    model.skips = frozenset({2})
    fit(tmp_path, SondeCallback(run, watch=strictly), model=model)
    assert values(run, "loss") == pytest.approx(model.losses, rel=1e-6)
    assert 3 not in steps(run, "loss")


def test_the_sanity_check_and_evaluations_outside_of_a_training_are_left_out(tmp_path: Path) -> None:
    run = tmp_path / "run"
    callback = SondeCallback(run, watch=strictly)
    model, host = Classifier(), trainer(tmp_path, callback, max_epochs=1, num_sanity_val_steps=1)
    host.validate(model, loader(20), verbose=False)
    host.fit(model, loader(), loader(20))
    host.validate(model, loader(20), verbose=False)
    assert steps(run, "val/loss") == [7]


def test_the_validation_loss_may_have_any_name(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = fit(tmp_path, SondeCallback(run, val_loss="val_acc/top 1", watch=strictly))
    assert values(run, "val/loss") == pytest.approx([found["val_acc/top 1"] for found in model.evaluations])
    assert values(run, "val/val_loss") == pytest.approx([found["val_loss"] for found in model.evaluations])


# Checkpoints.


def test_a_resumed_training_goes_on_without_a_jump(tmp_path: Path) -> None:
    straight, run = tmp_path / "straight", tmp_path / "run"
    plain = {"num_sanity_val_steps": 0}

    def fitted(into: Path, *more: Any, ckpt_path: Any = None, **settings: Any) -> Any:
        torch.manual_seed(0)
        model = Classifier()
        host = trainer(tmp_path, SondeCallback(into, watch=strictly), *more, **{**plain, **settings})
        host.fit(model, loader(), loader(20), ckpt_path=ckpt_path)
        return model

    whole = fitted(straight, max_epochs=3)
    fitted(run, ModelCheckpoint(tmp_path, filename="at", save_on_train_epoch_end=True), max_epochs=1)
    resumed = fitted(run, max_epochs=3, ckpt_path=tmp_path / "at.ckpt")
    assert_same(resumed, whole)
    assert_no_jump(
        run, straight, ["loss", "loss/ema", "loss/variance", "lr", "grad/norm", "val/loss", "epoch", "epoch/steps"]
    )
    assert sonde.load(run).events("resumed")[0].data["optimizers"][0]["num_with_state"] == 4


def test_a_checkpoint_within_an_epoch_leaves_what_came_after_it_on_a_branch(tmp_path: Path) -> None:
    run = tmp_path / "run"
    checkpoint = ModelCheckpoint(tmp_path, filename="at", every_n_train_steps=5, save_top_k=1)
    fit(tmp_path, SondeCallback(run, watch=strictly), checkpoint, max_epochs=1)
    first = values(run, "loss/ema")
    fit(tmp_path, SondeCallback(run, watch=strictly), ckpt_path=tmp_path / "at.ckpt")
    assert [(b.parent, b.fork_step) for b in sonde.load(run).branches] == [(None, 0), (0, 6)]
    assert steps(run, "loss") == list(range(1, 15))
    loss, ema = values(run, "loss"), values(run, "loss/ema")
    assert ema[:5] == first[:5]
    assert steps(run, "epoch") == [7, 14]
    assert ema[5] != pytest.approx(loss[5], rel=1e-3), "smoothing began anew"


def test_a_checkpoint_saved_after_the_training_has_the_state(tmp_path: Path) -> None:
    callback = SondeCallback(tmp_path / "run", watch=strictly)
    host = trainer(tmp_path, callback, max_epochs=1)
    host.fit(Classifier(), loader())
    host.save_checkpoint(tmp_path / "after.ckpt")
    state = torch.load(tmp_path / "after.ckpt", weights_only=True)["callbacks"]["SondeCallback"]
    assert (state["step"], state["epoch"]) == (7, 1)


def test_a_second_fit_of_one_trainer_goes_on_and_another_trainer_begins_anew(tmp_path: Path) -> None:
    callback = SondeCallback(tmp_path / "run", watch=strictly)
    model, host = Classifier(), trainer(tmp_path, callback, max_epochs=1)
    host.fit(model, loader())
    host.fit_loop.max_epochs = 2
    host.fit(model, loader())
    assert steps(tmp_path / "run", "loss") == list(range(1, 15))
    trainer(tmp_path, callback, max_epochs=1).fit(Classifier(), loader())
    assert steps(tmp_path / "run", "loss") == list(range(1, 8))


# Manual optimisation.


class OneByHand(Classifier):
    """Accumulates two batches by hand, and returns nothing."""

    def __init__(self, num: int = 1) -> None:
        super().__init__()
        self.num = num
        self.automatic_optimization = False

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        loss = functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        self.manual_backward(loss / self.num)
        if (batch_idx + 1) % self.num == 0:
            optimizer = self.optimizers()
            optimizer.step()
            optimizer.zero_grad()


def test_accumulation_by_hand_is_added_up_as_it_is_differentiated(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = OneByHand(2)
    fit(tmp_path, SondeCallback(run, watch=strictly), model=model, max_epochs=1, limit_train_batches=6)
    pairs = zip(model.losses[::2], model.losses[1::2], strict=True)
    assert values(run, "loss") == pytest.approx([(a + b) / 2 for a, b in pairs], rel=1e-6)


class Adversaries(pl.LightningModule):
    """Two optimisers, each with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.seen: dict[str, list[float]] = {"generator": [], "critic": []}

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        of_generator, of_critic = self.optimizers()
        noise = torch.randn(len(batch[0]), 4)
        self.toggle_optimizer(of_critic)
        critic = (self.critic(self.generator(noise).detach()) - self.critic(batch[0])).mean()
        self.seen["critic"].append(critic.item())
        self.manual_backward(critic)
        of_critic.step()
        of_critic.zero_grad()
        self.untoggle_optimizer(of_critic)
        self.toggle_optimizer(of_generator)
        generator = -self.critic(self.generator(noise)).mean()
        self.seen["generator"].append(generator.item())
        self.manual_backward(generator)
        of_generator.step()
        of_generator.zero_grad()
        self.untoggle_optimizer(of_generator)

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (self.generator, self.critic)]


def test_several_optimisers_have_losses_and_rates_of_their_own(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = fit(tmp_path, SondeCallback(run, watch=strictly), model=Adversaries())
    for name, seen in model.seen.items():
        assert values(run, f"loss/part@{name}") == pytest.approx(seen, rel=1e-6)
        assert values(run, f"lr@{name}") == pytest.approx([1e-3] * 14)
        assert len(values(run, f"grad/norm@{name}")) == 14
    assert "loss" not in sonde.load(run).tags()


# The end.


def test_an_exception_closes_the_run_as_crashed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = OneByHand()
    backward, fetch = torch.autograd.backward, DataLoader.__iter__

    class Failing(pl.Callback):
        def on_train_batch_end(self, host: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 3:
                raise RuntimeError("no more")

    host = trainer(tmp_path, SondeCallback(run, watch=strictly), Failing())
    with pytest.raises(RuntimeError, match="no more"):
        host.fit(model, loader(), loader(20))
    state = sonde.load(run).state
    assert (state.ending, state.reason) == ("crashed", "RuntimeError: no more")
    assert steps(run, "loss") == [1, 2, 3, 4]
    assert (torch.autograd.backward, DataLoader.__iter__) == (backward, fetch)


def test_nothing_of_sonde_is_called_after_the_training(tmp_path: Path) -> None:
    model, host = OneByHand(), trainer(tmp_path, SondeCallback(tmp_path / "run", watch=strictly), max_epochs=1)
    host.fit(model, loader())
    optimizer = host.optimizers[0]

    def step() -> None:
        for batch in loader():
            functional.cross_entropy(model.net(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    assert called(step) == set()


def test_a_keyboard_interrupt_closes_the_run_as_interrupted(tmp_path: Path) -> None:
    class Pressing(pl.Callback):
        def on_train_batch_end(self, host: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises((SystemExit, KeyboardInterrupt)):
        fit(tmp_path, SondeCallback(tmp_path / "run", watch=strictly), Pressing())
    assert sonde.load(tmp_path / "run").state.ending == "interrupted"


# Several processes.

PROGRAM = """
import json, torch
from torch.nn import functional
import lightning.pytorch as pl
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from sonde.integrations.lightning import SondeCallback

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.losses = []
    def training_step(self, batch, batch_idx):
        loss = functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def fit(how, *callbacks):
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    model = Model()
    data = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8)
    host = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
        callbacks=list(callbacks), enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    host.fit(model, data)
    total = sum(p.double().sum().item() for p in model.parameters())
    with open(f"{how}-{host.global_rank}.json", "w") as file:
        json.dump({"losses": model.losses, "weights": total.hex()}, file)

if __name__ == "__main__":
    fit("watched", SondeCallback("run"))
    fit("bare")
"""


def test_two_processes_record_their_own_losses_and_train_as_without(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    launched(sys.executable, "-W", "ignore", "train.py", folder=tmp_path)
    for rank, run in enumerate((tmp_path / "run", tmp_path / "run" / "ranks" / "1")):
        watched, bare = (json.loads((tmp_path / f"{how}-{rank}.json").read_text()) for how in ("watched", "bare"))
        assert watched == bare
        assert values(run, "loss") == pytest.approx(watched["losses"], rel=1e-6)
        assert sonde.load(run).state.ending == "finished"
