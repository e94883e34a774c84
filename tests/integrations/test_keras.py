"""The callback in the real Keras on its torch backend: fit, validate, back up, restore."""

# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found, name-defined"

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sonde

from .trainers import assert_no_jump, assert_same, called, steps, strictly, values

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", exc_type=ImportError)
if keras.config.backend() != "torch":
    pytest.skip("Keras has another backend", allow_module_level=True)

from sonde.integrations.keras import SondeCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:__array__ implementation:DeprecationWarning")


X = np.random.default_rng(1).standard_normal((50, 8), dtype=np.float32)
Y = (X.sum(1) > 0).astype("int64")


class Kept(keras.callbacks.Callback):
    """Works out the loss of each batch from the running means that Keras tells."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.evaluations: list[float] = []
        self.fails_at: int | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.total = self.num = 0.0
        if epoch == self.fails_at:
            raise RuntimeError("no more")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        size = 16 if batch < 3 else 2
        total = logs["loss"] * (self.num + size)
        self.losses.append((total - self.total) / size)
        self.total, self.num = total, self.num + size

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.evaluations.append(logs["val_loss"])


def network(optimizer: Any = None, dropout: float = 0.2) -> Any:
    keras.utils.clear_session()  # names of what is random are counted
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dense(16, activation="relu", name="first"),
        keras.layers.Dropout(dropout),
        keras.layers.Dense(2, name="second"),
    ]
    model = keras.Sequential([keras.Input((8,)), *layers], name="net")
    rate = keras.optimizers.schedules.ExponentialDecay(1e-2, 1, 0.9)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.Adam(rate), loss=loss, metrics=["accuracy"], jit_compile=False)
    return model


def fit(model: Any, *callbacks: Any, epochs: int = 2) -> Any:
    settings = {"batch_size": 16, "validation_data": (X[:20], Y[:20]), "shuffle": False, "verbose": 0}
    model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **settings)
    return model


def test_losses_rates_epochs_and_evaluations_are_those_of_keras(tmp_path: Path) -> None:
    run, kept = tmp_path / "run", Kept()
    fit(network(), SondeCallback(run, watch=strictly), kept)
    assert values(run, "loss") == pytest.approx(kept.losses, abs=1e-5)
    assert values(run, "lr") == pytest.approx([1e-2 * 0.9**i for i in range(8)])
    assert values(run, "val/loss") == pytest.approx(kept.evaluations, rel=1e-6)
    assert steps(run, "val/accuracy") == steps(run, "epoch") == [4, 8]
    assert len(values(run, "grad/norm")) == 8
    assert sonde.load(run).state.ending == "finished"


def test_weights_are_bit_identical_with_and_without(tmp_path: Path) -> None:
    assert_same(fit(network(), SondeCallback(tmp_path / "run", watch=strictly)), fit(network()))


def test_a_scaled_loss_and_its_gradients_are_recorded_unscaled(tmp_path: Path) -> None:
    for name, factor in (("plain", None), ("scaled", 1024.0)):
        optimizer = keras.optimizers.SGD(0.1, loss_scale_factor=factor)
        fit(network(optimizer), SondeCallback(tmp_path / name, watch=strictly))
    for tag in ("loss", "grad/norm"):
        assert values(tmp_path / "scaled", tag) == pytest.approx(values(tmp_path / "plain", tag), rel=1e-5)


def test_updates_are_the_changes_of_the_weights(tmp_path: Path) -> None:
    optimizer = keras.optimizers.SGD(0.1)
    fit(network(optimizer), SondeCallback(tmp_path / "run", watch=strictly), epochs=5)
    run = sonde.load(tmp_path / "run")
    rates = [tag for tag in run.tags() if tag.startswith("update/effective_lr@")]
    assert len(rates) == 4
    for tag in rates:
        assert run.series(tag).value == pytest.approx(0.1, rel=1e-3)


def test_a_restored_training_goes_on_without_a_jump(tmp_path: Path) -> None:
    straight, run, state = tmp_path / "straight", tmp_path / "run", tmp_path / "sonde.json"
    whole = fit(network(dropout=0.0), SondeCallback(straight, watch=strictly), epochs=3)

    def backup() -> Any:
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    failing = Kept()
    failing.fails_at = 2
    callback = SondeCallback(run, state=state, watch=strictly)
    with pytest.raises(RuntimeError, match="no more"), callback:
        fit(network(dropout=0.0), backup(), callback, failing, epochs=3)
    assert sonde.load(run).state.ending == "crashed"
    resumed = fit(network(dropout=0.0), backup(), SondeCallback(run, state=state, watch=strictly), epochs=3)
    assert_same(resumed, whole)
    assert_no_jump(run, straight, ["loss", "loss/ema", "lr", "grad/norm", "val/loss", "epoch"])


def test_nothing_of_sonde_is_called_after_the_training(tmp_path: Path) -> None:
    backward = torch.autograd.backward
    model = fit(network(), SondeCallback(tmp_path / "run", watch=strictly))
    assert torch.autograd.backward is backward
    assert called(lambda: fit(model)) == set()
