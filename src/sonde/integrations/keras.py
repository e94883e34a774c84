"""Keras 3 on its torch backend: a callback."""

# Where the library is missing its classes are unknown.
# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found, import-untyped"

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from sonde.core.errors import MissingExtra
from sonde.core.optional import require
from sonde.integrations.differentiated import Differentiated
from sonde.integrations.hosted import Begin, Hosted, evaluated
from sonde.monitor.watch import watch as sonde_watch

if TYPE_CHECKING:
    from keras.callbacks import Callback
else:
    try:
        Callback = require("keras", "keras").callbacks.Callback
    except MissingExtra:  # or a backend of its is: whoever makes a callback is told
        Callback = object


class Applied(Optimizer):
    """Stands for an optimiser of Keras, which has no hooks: its step is the other's `apply`."""

    def __init__(self, model: Any) -> None:
        self._keras = model.optimizer
        self._apply = model.optimizer.apply
        self._update: Any = None
        self.grad_scale: Tensor | None = None
        """What gradients are multiplied by, as fused optimisers of torch have it."""
        super().__init__([variable.value for variable in model.trainable_weights], {"lr": 0.0})
        self._one = torch.ones((), device=self.param_groups[0]["params"][0].device)

    def begin(self) -> None:
        """Stand between the model and its optimiser."""
        self._keras.apply = self._applied

    def end(self) -> None:
        """Stand aside."""
        del self._keras.apply

    @torch.no_grad()
    def unscaled(self, loss: Tensor) -> Tensor:
        """A loss without what it was multiplied by before it was differentiated."""
        scale = self._keras.scale_loss(self._one)
        return loss if scale is self._one else loss.detach() / scale

    @torch.no_grad()
    def _applied(self, *args: Any, **kwargs: Any) -> None:
        rate, scale = self._keras.learning_rate, self._keras.scale_loss(self._one)
        self.param_groups[0]["lr"] = getattr(rate, "value", rate)
        self.grad_scale = None if scale is self._one else scale
        self._update = partial(self._apply, *args, **kwargs)
        self.step()

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Have the weights changed by the optimiser of Keras."""
        update, self._update = self._update, None
        update()


class SondeCallback(Callback):
    """Watches `model.fit`: `model.fit(x, y, callbacks=[SondeCallback("runs/demo")])`.

    - **Losses.** Keras tells callbacks the mean since the epoch began. So the loss of a step is taken where `backward`
      is called on it, without what an optimiser has multiplied it by.
    - **Evaluations.** The validation of each epoch, `val_loss` as `val/loss`.
    - **Gradients** are those that `apply` gets. `clipnorm` and its like are inside of it, and not seen; nor are layers,
      which are no modules of torch's. With `gradient_accumulation_steps` every batch is a step.
    - **Checkpoints.** Those of Keras have no place for callbacks. Name a `state` file, and it is written at the end of
      every epoch and read where a training begins whose optimiser has made as many steps: after a
      `keras.callbacks.BackupAndRestore`, behind which it stands in the list, or `keras.models.load_model`.
    - **The end.** Keras tells nobody of exceptions. One that ends the process closes the run as crashed; where you
      catch it, `with callback: model.fit(...)` does, and so does the next training.

    Args:
        run: Folder of the run, as for `sonde.watch`.
        state: File for the state between two sessions; none where left out.
        watch: `sonde.watch`, or a `functools.partial` of it with other settings.

    Raises:
        MissingExtra: Keras is not installed, or does not import.
        ValueError: its backend is another one.
    """

    def __init__(
        self,
        run: str | os.PathLike[str] | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        watch: Begin = sonde_watch,
    ) -> None:
        backend = require("keras", "keras").config.backend()
        if backend != "torch":
            raise ValueError(
                f"Sonde watches Keras on its torch backend, and this is {backend}: set KERAS_BACKEND=torch."
            )
        super().__init__()
        self._hosted = Hosted(watch, run)
        self._file = None if state is None else Path(state)
        self._losses: Differentiated | None = None
        self._applied: Applied | None = None

    # The beginning and the end.

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """The model is built and, where a callback before this one does so, restored."""
        self._let_go()
        self._applied = Applied(self.model)
        self._hosted.begin(self.model, self._applied, state=self._kept())
        self._losses = Differentiated()
        self._applied.begin()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Close the run."""
        self._let_go()
        self._hosted.end()

    def __enter__(self) -> "SondeCallback":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()
        self._hosted.end(value)

    def _let_go(self) -> None:
        if self._losses is not None and self._applied is not None:
            self._losses.close()
            self._applied.end()
        self._losses = self._applied = None

    # Steps, epochs and evaluations.

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """A step is over."""
        if self._hosted.watch is not None and self._losses is not None and self._applied is not None:
            loss = self._losses.take()
            self._hosted.watch.step(None if loss is None else self._applied.unscaled(loss))

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """A validation begins."""
        if self._hosted.watch is not None:
            self._hosted.watch.end_of_data()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """An epoch and its validation are over."""
        if self._hosted.watch is None:
            return
        found = {name: value for name, value in (logs or {}).items() if name.startswith("val_")}
        if found:
            evaluated(self._hosted.watch, found, prefixes=("val_",))
        self._hosted.watch.epoch()
        self._keep()

    # Checkpoints.

    def _num_applied(self) -> int:
        return int(self.model.optimizer.iterations.value)

    def _keep(self) -> None:
        if self._file is not None:
            text = json.dumps({"iterations": self._num_applied(), "sonde": dict(self._hosted.state())})
            self._file.parent.mkdir(parents=True, exist_ok=True)
            whole = self._file.with_name(f"{self._file.name}.part")
            whole.write_text(text, encoding="utf-8")
            whole.replace(self._file)

    def _kept(self) -> Mapping[str, Any]:
        num = self._num_applied()
        if self._file is None or not num or not self._file.is_file():
            return {}
        kept = json.loads(self._file.read_text(encoding="utf-8"))
        return kept["sonde"] if kept["iterations"] == num else {}
