"""Hugging Face `Trainer`, and every trainer that is made of it (TRL): a callback."""

# Where the library is missing its classes are unknown.
# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found, import-untyped"

import json
import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sonde.core.optional import available, require
from sonde.integrations.differentiated import Differentiated
from sonde.integrations.hosted import Begin, Hosted, evaluated
from sonde.monitor.watch import watch as sonde_watch

if TYPE_CHECKING or available("transformers"):
    from transformers.trainer_callback import ExportableState, TrainerCallback
else:

    class TrainerCallback:
        """Stands in where the library is missing."""

    class ExportableState:
        """Stands in where the library is missing."""


_TIMES = ("_runtime", "_per_second", "_time")
"""Ends of the names of metrics that measure the machine, not the model."""


class SondeCallback(TrainerCallback, ExportableState):
    """Watches `Trainer.train`: `Trainer(..., callbacks=[SondeCallback("runs/demo")])`.

    - **Losses.** Callbacks are not told the loss of a step, only the mean since the last log. So it is taken where
      `backward` is called on it, before a gradient scaler, and added up over the micro-steps of accumulation, which the
      trainer has weighted: what it logs with `logging_steps=1`. With several processes it is this process's own.
    - **Evaluations.** The metrics of every evaluation while the training lasts, without the `eval_` in front.
    - **Checkpoints.** The state of the watch goes into `trainer_state.json` and comes back with
      `train(resume_from_checkpoint=...)`: name the `run`, so that it is the same one. Ranks but the first go on from
      the state of the first. `restore_callback_states_from_checkpoint` is not needed, and would make the callback
      anew, with nothing but its `run`.
    - **The end.** The trainer tells nobody of exceptions. One that ends the process closes the run as crashed; where
      you catch it, `with callback: trainer.train()` does, and so does the next training.

    Args:
        run: Folder of the run, as for `sonde.watch`.
        watch: `sonde.watch`, or a `functools.partial` of it with other settings.

    Raises:
        MissingExtra: Transformers is not installed.
    """

    def __init__(self, run: str | os.PathLike[str] | None = None, *, watch: Begin = sonde_watch) -> None:
        require("transformers", "huggingface")
        self._run = run
        self._hosted = Hosted(watch, run)
        self._losses: Differentiated | None = None

    # The beginning and the end.

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Whatever a checkpoint has is loaded by now."""
        self._let_go()
        name = type(self).__name__
        kept = state.stateful_callbacks.get(name) or {}
        kept = (kept[0] if isinstance(kept, list) else kept).get("attributes", {})
        # A checkpoint from before this callback has no place for it, where the trainer expects one.
        state.stateful_callbacks.setdefault(name, self.state())
        optimizer = kwargs["optimizer"]
        self._hosted.begin(
            kwargs["model"],
            getattr(optimizer, "optimizer", optimizer),  # Accelerate's wrapper has no hooks
            state=json.loads(kept.get("restored", "{}")) if state.global_step else {},
            settings={"loss.micro": "sum"},
        )
        self._losses = Differentiated()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
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
        if self._losses is not None:
            self._losses.close()
            self._losses = None

    # Steps, epochs and evaluations.

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A micro-step of accumulation is over."""
        if self._hosted.watch is not None and self._losses is not None:
            self._hosted.watch.step(self._losses.take())

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step is over; an evaluation may follow."""
        self.on_substep_end(args, state, control)
        if self._hosted.watch is not None and control.should_evaluate:
            self._hosted.watch.end_of_data()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch is over; an evaluation may follow."""
        if self._hosted.watch is not None:
            self._hosted.watch.epoch()

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Its metrics are there."""
        if self._hosted.watch is not None and metrics is not None:
            told = {name: v for name, v in metrics.items() if name != "epoch" and not name.endswith(_TIMES)}
            evaluated(self._hosted.watch, told, prefixes=("eval_",))

    # Checkpoints.

    def state(self) -> dict[str, Any]:
        """As the trainer keeps it: how to make the callback anew, and the state of its watch."""
        # As text: else the trainer writes a line for each of thousands of numbers, and sorts what has an order.
        return {
            "args": {} if self._run is None else {"run": os.fspath(self._run)},
            "attributes": {"restored": json.dumps(self._hosted.state())},
        }
