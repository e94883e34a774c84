"""PyTorch Lightning: a callback."""

# Where the library is missing its classes are unknown.
# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found, import-untyped"

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from sonde.core.optional import available, require
from sonde.integrations.differentiated import Differentiated
from sonde.integrations.entries import LOADER_NEXT, Fetched
from sonde.integrations.hosted import Begin, Hosted, evaluated, named
from sonde.monitor.watch import watch as sonde_watch

if TYPE_CHECKING or available("lightning"):
    from lightning.pytorch import Callback
elif available("pytorch_lightning"):  # the same library under its older name
    Callback = require("pytorch_lightning", "lightning").Callback
else:
    Callback = object

_PREFIXES = ("val_", "val/", "valid_", "valid/", "validation_", "validation/")


class SondeCallback(Callback):
    """Watches `Trainer.fit`: put it among the trainer's `callbacks`.

    - **Losses.** With automatic optimisation the loss of a step is what `training_step` returned, the mean of the
      batches that were accumulated. With manual optimisation it is what `backward` was called on, added up; with
      several optimisers each has its own, `loss/part@<name>`, where the name is that of the part of the module that it
      trains, or its place.
    - **Evaluations.** What the validation has logged and `trainer.callback_metrics` has. The sanity check is left out,
      and so are `trainer.validate` and `trainer.test`.
    - **Checkpoints.** The state of the watch is the callback's, and comes back with `fit(ckpt_path=...)`: name the
      `run`, so that it is the same one. Ranks but the first go on from the state of the first.
    - **The end.** An exception closes the run, as crashed or interrupted.

    Args:
        run: Folder of the run, as for `sonde.watch`.
        val_loss: The name under which the validation loss is logged; where left out, `val_loss`, `val/loss`,
            `valid_loss`, `validation_loss` and the like.
        watch: `sonde.watch`, or a `functools.partial` of it with other settings.

    Raises:
        MissingExtra: Lightning is not installed.
    """

    def __init__(
        self,
        run: str | os.PathLike[str] | None = None,
        *,
        val_loss: str | None = None,
        watch: Begin = sonde_watch,
    ) -> None:
        if Callback is object:
            require("lightning.pytorch", "lightning")
        super().__init__()
        self._val_loss = val_loss
        self._hosted = Hosted(watch, run)
        self._restored: Mapping[str, Any] = {}
        self._losses: Differentiated | None = None
        self._parts: dict[str, Tensor] = {}
        self._optimizers: dict[int, str] = {}
        self._loss: Tensor | None = None
        """What `backward` got last."""
        self._waited_s: float | None = None
        self._before: dict[str, Any] = {}
        """What was logged before the validation."""
        self._undo: Callable[[], None] | None = None

    # The beginning and the end.

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Whatever a checkpoint has is loaded by now."""
        self._let_go()
        optimizers = named(pl_module, trainer.optimizers)
        self._optimizers = {id(o): name for name, o in optimizers.items()} if isinstance(optimizers, dict) else {}
        # Of another training, where this one is new.
        state = (self._restored or self._hosted.state()) if trainer.global_step else {}
        self._restored = {}
        settings = {} if pl_module.automatic_optimization else {"loss.micro": "sum"}
        self._hosted.begin(pl_module, optimizers, state=state, settings=settings)
        if not pl_module.automatic_optimization:
            self._losses = Differentiated()

        def fetched(event: Fetched) -> None:
            if event.done and trainer.training:
                self._waited_s = (self._waited_s or 0.0) + event.waited_s

        self._undo = LOADER_NEXT.listen(fetched)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Before the module is moved elsewhere."""
        self._let_go()
        self._hosted.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close the run with the reason."""
        self._let_go()
        self._hosted.end(exception)

    def _let_go(self) -> None:
        if self._losses is not None:
            self._losses.close()
        if self._undo is not None:
            self._undo()
        self._losses = self._undo = self._loss = self._waited_s = None
        self._parts, self._before = {}, {}

    # Steps.

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A batch is about to be used."""
        if self._hosted.watch is not None and self._waited_s is not None:
            self._hosted.watch.batch(batch, waited_s=self._waited_s)
            self._waited_s = 0.0

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """With its graph, which tells more than its value."""
        self._loss = loss

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        """With several optimisers: what was differentiated since the last one's step is this one's."""
        name = self._optimizers.get(id(optimizer))
        if name is not None and self._losses is not None and (loss := self._losses.take()) is not None:
            self._parts[name] = loss

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """An iteration is over."""
        differentiated, self._loss = self._loss, None
        parts, self._parts = self._parts, {}
        if self._hosted.watch is None:
            return
        if self._losses is not None:
            rest = self._losses.take()
            returned = outputs.get("loss") if isinstance(outputs, Mapping) and not parts else None
            self._hosted.watch.step(rest if rest is not None else returned, parts=parts)
            return
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor):
            if trainer.accumulate_grad_batches > 1:
                loss = loss.detach() * trainer.accumulate_grad_batches  # Lightning has divided it
            elif differentiated is not None and getattr(trainer.precision_plugin, "scaler", None) is None:
                loss = differentiated
        self._hosted.watch.step(loss if isinstance(loss, Tensor) else None)

    # Evaluations and epochs.

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """What is logged from now on is the validation's."""
        if self._hosted.watch is not None:
            self._before = dict(trainer.callback_metrics)
            self._hosted.watch.end_of_data()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Its metrics are there."""
        if self._hosted.watch is not None:
            metrics = {n: v for n, v in trainer.callback_metrics.items() if v is not self._before.get(n)}
            evaluated(self._hosted.watch, metrics, prefixes=_PREFIXES, loss=self._val_loss)
        self._before = {}

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """An epoch is over."""
        if self._hosted.watch is not None:
            self._hosted.watch.epoch()

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """Of the watch, in plain numbers."""
        return dict(self._hosted.state())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there, when the training begins."""
        self._restored = state_dict
