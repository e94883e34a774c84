"""What the steps of optimisers pass through: hooks around them, at clipping and at a gradient scaler."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sonde.monitor import ranks
from sonde.monitor.by_hand import UpdatedByHand
from sonde.monitor.desk import Desk
from sonde.monitor.guard import Guard
from sonde.monitor.notices import Notices
from sonde.monitor.optimizers import Optimised, ParameterReader, note_scaling
from sonde.monitor.probing import Probing
from sonde.monitor.schedule import Schedule
from sonde.monitor.sharing import Sharing
from sonde.monitor.sheets import Key, Sheet
from sonde.probes.calls import CALLS
from sonde.probes.seams import CLIP_BY_NORM, CLIP_BY_VALUE, MAKE_GRAPHS, SCALER_STEP, Clip, ScalerStep
from sonde.streams.logs import logger

_log = logger("sonde.monitor")

_UNCLOSED_STEPS = 1000  # some loops make hundreds in one iteration


class Stepping:
    """Reads gradients, weights, updates and rates at the steps of optimisers.

    Args:
        optimised: The optimisers, by their `id`.
        reader: Reads their parameters.
        desk: Where the numbers go.
        guard: Around whatever we do.
    """

    def __init__(self, optimised: dict[int, Optimised], reader: ParameterReader, desk: Desk, guard: Guard) -> None:
        self._optimised, self._reader, self._desk, self._guard = optimised, reader, desk, guard
        self._is_over = False
        self._is_resumed = False
        self._is_closed_ever = False
        """Whether an iteration of the loop was."""
        self._undo: list[Callable[[], None]] = []

    def attach(self, probing: Probing, put_event: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Begin to listen.

        Args:
            probing: What is measured beside.
            put_event: Records an event.
        """
        self._probing, self._put_event = probing, put_event
        # Not to be traced into a compiled optimiser step.
        pre: Any = torch.compiler.disable(self._pre)  # type: ignore[no-untyped-call]
        post: Any = torch.compiler.disable(self._post)  # type: ignore[no-untyped-call]
        self._pre_hook = pre
        for optimised in self._optimised.values():
            self._put_last(optimised)
            self._undo.append(optimised.leave)
            self._undo.append(optimised.optimizer.register_step_post_hook(post).remove)
            self._undo.append(optimised.optimizer.register_load_state_dict_post_hook(self._on_load).remove)
        self._undo.append(CLIP_BY_NORM.listen(self._on_clip))
        self._undo.append(CLIP_BY_VALUE.listen(self._on_clip))
        self._undo.append(SCALER_STEP.listen(self._on_scaler))
        self._undo.append(MAKE_GRAPHS.listen(self._on_graphs))

    def _put_last(self, optimised: Optimised) -> None:
        """Have our hook run after all others, which may change gradients."""
        if not optimised.is_last():
            optimised.leave()
            optimised.handle = optimised.optimizer.register_step_pre_hook(self._pre_hook)

    def close_iteration(self, sheet: Sheet) -> None:
        """Write down which optimisers made a step in it, and get ready for the next."""
        self._is_closed_ever = True
        for optimised in self._optimised.values():
            if optimised.applied:
                sheet.applied.add(optimised.name)
            optimised.begin()
            self._put_last(optimised)

    def begin_iteration(self) -> None:
        """Get ready for the next, after one that rested."""
        for optimised in self._optimised.values():
            optimised.begin()
            if not self._desk.rests:  # else nothing is read in it
                self._put_last(optimised)

    def read_replayed(self, sheet: Sheet) -> None:
        """A step inside a replayed CUDA graph calls no hook: its gradients and weights are still where they were."""
        for optimised in self._optimised.values():
            if optimised.captured and not optimised.applied:
                with self._guard, torch.no_grad():
                    self._reader.gradients(sheet, optimised)
                    self._reader.weights(sheet, optimised)
                    _note_settings(sheet, optimised)
                optimised.applied = True

    def resume(self) -> None:
        """A checkpoint was loaded, and whatever it has of the optimisers will be before the next step."""
        self._is_resumed = True

    def _pre(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        optimised, desk = self._optimised.get(id(optimizer)), self._desk
        if optimised is None or self._is_over:
            return
        by_hand = isinstance(optimizer, UpdatedByHand)
        if by_hand:  # said after every `backward`: what was read after the last one does not count any more
            optimised.begin()
            desk.sheet.forget_gradients(optimised.name)
        optimised.depth += 1
        if optimised.depth > 1:  # a subclass that calls super().step()
            return
        if desk.is_capturing:
            optimised.captured = True
            return
        if desk.rests or optimised.is_measured_enough:
            began = time.perf_counter()
            with self._guard:
                _note_settings(desk.sheet, optimised)
                note_scaling(desk.sheet, optimised)
            desk.took("pre", began)
            optimised.entered = time.perf_counter()
            return
        began = desk.budget.begin("pre")
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        optimised.has_closure = closure is not None
        with self._guard:
            if self._is_resumed:
                self._say_resumed()
            self._probing.before_optimizer(optimizer, has_closure=optimised.has_closure)
        with self._guard, torch.no_grad():
            self._refresh(optimised)
            _note_settings(desk.sheet, optimised)  # now: a scheduler may act before the iteration is closed
            if optimised.sharing is not None:
                optimised.sharing.begin()
            if not optimised.is_blind:
                if not optimised.has_closure:
                    self._reader.gradients(desk.sheet, optimised)
                self._reader.copy_weights(optimised)
        with self._guard:
            if by_hand:
                self._probing.awaits_update()
            else:
                self._probing.at_optimizer()
        desk.budget.end("pre", began)
        optimised.entered = time.perf_counter()

    def _post(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        optimised, desk = self._optimised.get(id(optimizer)), self._desk
        if optimised is None or self._is_over:
            return
        optimised.depth -= 1
        if optimised.depth > 0 or desk.is_capturing:
            return
        reads_gradients = optimised.has_closure  # they came into being inside of the step, and are still there
        if isinstance(optimizer, UpdatedByHand):
            _note_settings(desk.sheet, optimised)  # only the update tells its rate
            reads_gradients = optimizer.has_new_gradients
        else:
            desk.spent["time/optimizer"] += time.perf_counter() - optimised.entered
        optimised.applied, optimised.captured = True, False
        is_enough = optimised.is_measured_enough
        optimised.num_in_iteration += 1
        if not self._is_closed_ever and optimised.num_in_iteration == _UNCLOSED_STEPS:
            self._say_unclosed()
        if desk.rests or is_enough:
            with self._guard:
                self._probing.preflight.after_optimizer(optimizer)
            return
        began = desk.budget.begin("post")
        with self._guard:
            self._probing.after_optimizer(optimizer, has_closure=optimised.has_closure)
        try:
            with self._guard, torch.no_grad():
                if not optimised.is_blind:
                    if reads_gradients:
                        self._reader.gradients(desk.sheet, optimised)
                    self._reader.updates(desk.sheet, optimised)
                    self._reader.weights(desk.sheet, optimised)
        finally:
            if optimised.sharing is not None:  # the other ranks wait for us, whatever went wrong
                with self._guard:
                    optimised.sharing.finish(desk.sheet, optimised.name)
        with self._guard:
            self._probing.resume()
        desk.budget.end("post", began)

    def _say_unclosed(self) -> None:
        _log.warning(
            "nothing is recorded: an optimiser has made %s steps, and `watch.step` was never called; "
            "call it once in each iteration of the loop",
            f"{_UNCLOSED_STEPS:,}",
        )

    def _refresh(self, optimised: Optimised) -> None:
        if self._reader.refresh(optimised) and optimised.kind is not None and optimised.kind[1] != self._desk.device:
            self._desk.move_to(optimised.kind[1])

    def _on_clip(self, clip: Clip) -> None:
        desk = self._desk
        if self._is_over or desk.rests or not clip.parameters or desk.is_capturing:
            return
        began = desk.budget.begin("clip")
        with self._guard, torch.no_grad():
            if clip.done:
                self._probing.clip(is_done=True)
            self._probing.pause()
            self._probing.preflight.clipped(clip)
            for optimised in self._optimised.values():
                if optimised.is_measured_enough:
                    continue
                self._refresh(optimised)
                if not optimised.is_blind:
                    self._reader.clip(desk.sheet, optimised, clip)
        with self._guard:
            self._probing.resume()
            if not clip.done:
                self._probing.clip(is_done=False)
        desk.budget.end("clip", began)

    def _on_scaler(self, event: ScalerStep) -> None:
        optimised, sheet = self._optimised.get(id(event.optimizer)), self._desk.sheet
        if optimised is None or self._is_over:
            return
        with self._guard:
            self._probing.preflight.scaler_step(event)
            if not optimised.applied:
                sheet.skipped.add(optimised.name)
            if event.scale is not None:
                scale = event.scale.detach().clone()
                sheet.add(Key("scale", optimised.name), scale)
                if event.unscaled_here:
                    sheet.add(Key("clip_scale", optimised.name), scale)

    def _on_graphs(self, callables: Sequence[Any]) -> None:
        """What is computed to make graphs is no training: nobody is told of it."""
        with self._guard:
            CALLS.forget(part for module in callables if isinstance(module, nn.Module) for part in module.modules())

    def _on_load(self, optimizer: Optimizer) -> None:
        with self._guard:
            if not self._is_over:
                self._probing.settings.restored(optimizer)

    def _say_resumed(self) -> None:
        """Now that a step is made, whatever the checkpoint has of the optimisers is loaded."""
        self._is_resumed = False
        optimizers = [
            {
                "optimizer": type(optimised.optimizer).__name__,
                **({"name": optimised.name} if optimised.name else {}),
                "num_with_state": len(optimised.optimizer.state),
            }
            for optimised in self._optimised.values()
        ]
        self._put_event("resumed", {"optimizers": optimizers})

    def stop(self) -> None:
        """Do nothing more, hooks in place or not."""
        self._is_over = True

    def leave(self) -> None:
        """Take all hooks away."""
        self.stop()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        for optimised in self._optimised.values():
            if optimised.sharing is not None:
                optimised.sharing.leave(optimised.optimizer, optimised.depth)


def share_between_ranks(optimised: Sequence[Optimised], call: ranks.Call, schedule: Schedule, notices: Notices) -> None:
    """Where parameters are split, all ranks must watch, or those that do would wait for the others for ever."""
    split = [one for one in optimised if Sharing.needed(one.watched)]
    if not split:
        return
    if call.all_ranks():
        for one in split:
            one.sharing = Sharing(one.watched, schedule.cadences)
            for tag in ("grad/cosine*", "update/cosine*"):
                notices.not_measured(tag, "sketches of parameters that are split over ranks do not add up")
        return
    reason = "its parameters are split over ranks, not all of which called `sonde.watch`"
    _log.warning("gradients, weights and updates are not measured: %s; call it on every rank", reason)
    for one in split:
        where = f"@{one.name}" if one.name else ""
        for family in ("grad", "weight", "update"):
            notices.not_measured(f"{family}/*{where}", reason)
        one.is_blind = True


def _note_settings(sheet: Sheet, optimised: Optimised) -> None:
    at = f"@{optimised.name}" if optimised.name else ""
    groups = optimised.optimizer.param_groups
    if len(groups) != len(optimised.lr_tags):
        # The first group's rate is the run's, so that a group added later does not cut the series.
        of_groups = [(f"lr{at}.{i}" if at else f"lr@{i}",) for i in range(len(groups))] if len(groups) > 1 else [()]
        optimised.lr_tags = [(f"lr{at}", *of_groups[0]), *of_groups[1:]]
    host = sheet.host
    for group, tags in zip(groups, optimised.lr_tags, strict=True):
        lr = group.get("lr")
        if type(lr) is float:
            for tag in tags:
                host[tag] = lr
        elif isinstance(lr, Tensor) and lr.device.type != "cpu":
            sheet.add(Key("lr", optimised.name, tags), lr.detach().clone())  # schedulers change it in place
        elif lr is not None:
            host.update(dict.fromkeys(tags, float(lr)))
