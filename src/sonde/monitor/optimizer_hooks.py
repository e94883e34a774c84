"""Hooks around the steps of optimisers, at clipping and at a gradient scaler: they tell the probes."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from sonde.monitor import ranks
from sonde.monitor.by_hand import UpdatedByHand
from sonde.monitor.guard import Guard
from sonde.monitor.notices import Notices
from sonde.probes.cadences import Cadences
from sonde.probes.calls import CALLS
from sonde.probes.events import Events
from sonde.probes.optimizers import WatchedOptimizer
from sonde.probes.seams import CLIP_BY_NORM, CLIP_BY_VALUE, MAKE_GRAPHS, SCALER_STEP, Clip, ScalerStep
from sonde.probes.sharing import Sharing
from sonde.streams.logs import logger

_log = logger("sonde.monitor")

_UNCLOSED_STEPS = 1000  # some loops make hundreds in one iteration
# Of several steps in one iteration of the loop the last one read is recorded: a critic makes five, and a loop in which
# nobody closes the iterations any number.
_MOST_MEASURED = 16


class Steps(NamedTuple):
    """What the optimisers have done in an iteration."""

    applied: frozenset[str]
    """Those that made a step, as far as the host knows."""
    skipped: frozenset[str]
    """Those whose step a gradient scaler withheld."""
    overflows: Mapping[str, Tensor]
    """What a gradient scaler has found of fused ones."""


class Work(Protocol):
    """Where our work around a step is charged to."""

    @property
    def spent(self) -> dict[str, float]:
        """Seconds since the last step."""

    @property
    def is_capturing(self) -> bool:
        """Whether the user is recording a CUDA graph."""

    @property
    def device(self) -> torch.device:
        """Where the parameters are, as far as is known."""

    def begin(self, part: str) -> float:
        """A part of our work begins."""

    def end(self, part: str, began: float) -> float:
        """It is over; when."""

    def move_to(self, device: torch.device) -> None:
        """The parameters were moved."""


@dataclass(slots=True, eq=False)
class _Hooked:
    """An optimiser with our hooks, in an iteration."""

    watched: WatchedOptimizer
    handle: RemovableHandle | None = None
    depth: int = 0
    is_captured: bool = False
    """Whether its step was recorded into a CUDA graph: replayed, it calls no hook."""
    entered: float = 0.0
    has_closure: bool = False
    num_steps: int = 0
    is_skipped: bool = False
    overflow: Tensor | None = None

    def is_last(self) -> bool:
        """Whether our hook runs after all others."""
        hooks = self.handle.hooks_dict_ref() if self.handle is not None else None
        return hooks is not None and self.handle is not None and next(reversed(hooks), None) == self.handle.id

    def leave(self) -> None:
        """Take our hook off, where it is."""
        if self.handle is not None:
            self.handle.remove()


class OptimizerHooks:
    """Tells the probes what optimisers do, and counts their steps.

    Args:
        watched: The optimisers.
        events: Where probes listen.
        work: Where what we do is charged to.
        guard: Around whatever we do.
        put_event: Records an event.
    """

    def __init__(
        self,
        watched: Sequence[WatchedOptimizer],
        events: Events,
        work: Work,
        guard: Guard,
        put_event: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._hooked = {id(one.optimizer): _Hooked(one) for one in watched}
        self._events, self._work, self._guard, self._put_event = events, work, guard, put_event
        self._is_over = self._is_resumed = self._is_closed_ever = False
        self._undo: list[Callable[[], None]] = []

    def attach(self) -> None:
        """Begin to listen."""
        # Not to be traced into a compiled optimiser step.
        self._pre_hook: Any = torch.compiler.disable(self._pre)  # type: ignore[no-untyped-call]
        post: Any = torch.compiler.disable(self._post)  # type: ignore[no-untyped-call]
        for hooked in self._hooked.values():
            optimizer = hooked.watched.optimizer
            self._put_last(hooked)
            self._undo.append(hooked.leave)
            self._undo.append(optimizer.register_step_post_hook(post).remove)
            self._undo.append(optimizer.register_load_state_dict_post_hook(self._on_load).remove)
        self._undo.append(CLIP_BY_NORM.listen(self._on_clip))
        self._undo.append(CLIP_BY_VALUE.listen(self._on_clip))
        self._undo.append(SCALER_STEP.listen(self._on_scaler))
        self._undo.append(MAKE_GRAPHS.listen(self._on_graphs))

    def _put_last(self, hooked: _Hooked) -> None:
        """Have our hook run after all others, which may change gradients."""
        if not hooked.is_last():
            hooked.leave()
            hooked.handle = hooked.watched.optimizer.register_step_pre_hook(self._pre_hook)

    def close_iteration(self) -> Steps:
        """What the optimisers have done in it; the next one begins."""
        self._is_closed_ever = True
        applied, skipped, overflows = [], [], {}
        for hooked in self._hooked.values():
            name = hooked.watched.name
            if hooked.num_steps:
                applied.append(name)
            if hooked.is_skipped:
                skipped.append(name)
            if hooked.overflow is not None:
                overflows[name] = hooked.overflow
            hooked.num_steps, hooked.depth, hooked.is_skipped, hooked.overflow = 0, 0, False, None
            self._put_last(hooked)
        return Steps(frozenset(applied), frozenset(skipped), overflows)

    def read_replayed(self) -> None:
        """A step inside a replayed CUDA graph calls no hook: its gradients and weights are still where they were."""
        for hooked in self._hooked.values():
            if hooked.is_captured and not hooked.num_steps:
                optimizer, events = hooked.watched.optimizer, self._events
                with self._guard, torch.no_grad():
                    for listeners in (events.optimizer_enters, events.gradients, events.optimizer_left):
                        events.tell(listeners, optimizer)
                hooked.num_steps = 1

    def resume(self) -> None:
        """A checkpoint was loaded, and whatever it has of the optimisers will be before the next step."""
        self._is_resumed = True

    def _pre(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hooked, work = self._hooked.get(id(optimizer)), self._work
        if hooked is None or self._is_over:
            return
        if isinstance(optimizer, UpdatedByHand):  # said after every `backward`: the last one counts
            hooked.depth = 0
            self._events.tell(self._events.starts_over, optimizer)
        hooked.depth += 1
        if hooked.depth > 1:  # a subclass that calls super().step()
            return
        if work.is_capturing:
            hooked.is_captured = True
            return
        began = work.begin("pre")
        self._measure(self._enter, hooked, args[1] if len(args) > 1 else kwargs.get("closure"))
        hooked.entered = work.end("pre", began)

    def _measure(self, function: Callable[..., None], *args: Any) -> None:
        """Call what reads tensors: autograd notes nothing, and faults do not reach the training.

        The guard and `torch.no_grad` are eight calls, which a small model would notice.
        """
        was_enabled = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            function(*args)
        except Exception as error:
            self._guard.failed(error)
        finally:
            torch._C._set_grad_enabled(was_enabled)

    def _enter(self, hooked: _Hooked, closure: Any) -> None:
        events, optimizer = self._events, hooked.watched.optimizer
        overflow = getattr(optimizer, "found_inf", None)
        if isinstance(overflow, Tensor):
            hooked.overflow = overflow.detach().clone()  # the scaler changes it in place
        hooked.has_closure = closure is not None
        if self._is_resumed:
            self._say_resumed()
        if hooked.num_steps >= _MOST_MEASURED:
            return
        if events.moment:
            events.mark("monitor")
        events.tell(events.optimizer_enters, optimizer)
        if not hooked.has_closure:
            events.tell(events.gradients, optimizer)
        if events.moment:
            events.mark("monitor-done")
            if not isinstance(optimizer, UpdatedByHand):
                events.mark("optimizer")
        kind = hooked.watched.kind
        if kind is not None and kind[1] != self._work.device:  # the parameters were moved
            self._work.move_to(kind[1])

    def _post(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hooked, work, events = self._hooked.get(id(optimizer)), self._work, self._events
        if hooked is None or self._is_over:
            return
        hooked.depth -= 1
        if hooked.depth > 0 or work.is_capturing:
            return
        reads_gradients = hooked.has_closure  # they came into being inside of the step, and are still there
        if isinstance(optimizer, UpdatedByHand):
            events.tell(events.rates, optimizer)
            reads_gradients = optimizer.has_new_gradients
        else:
            work.spent["time/optimizer"] += time.perf_counter() - hooked.entered
        hooked.is_captured = False
        hooked.num_steps += 1
        if hooked.num_steps > _MOST_MEASURED:
            if not self._is_closed_ever and hooked.num_steps == _UNCLOSED_STEPS:
                self._say_unclosed()
            return
        began = work.begin("post")
        self._measure(self._left, optimizer, reads_gradients)
        work.end("post", began)

    def _left(self, optimizer: Optimizer, reads_gradients: bool) -> None:
        events = self._events
        if events.moment:
            events.mark("optimizer-done")
            events.mark("monitor")
        if reads_gradients:
            events.tell(events.gradients, optimizer)
        events.tell(events.optimizer_left, optimizer)
        if events.moment:
            events.mark("monitor-done")

    def _say_unclosed(self) -> None:
        _log.warning(
            "nothing is recorded: an optimiser has made %s steps, and `watch.step` was never called; "
            "call it once in each iteration of the loop",
            f"{_UNCLOSED_STEPS:,}",
        )

    def _on_clip(self, clip: Clip) -> None:
        work, events = self._work, self._events
        if self._is_over or not clip.parameters or work.is_capturing:
            return
        if all(hooked.num_steps >= _MOST_MEASURED for hooked in self._hooked.values()):
            return
        began = work.begin("clip")
        with self._guard, torch.no_grad():
            if clip.done:
                events.mark("clip-done")
            events.mark("monitor")
            events.tell(events.clip, clip)
            events.mark("monitor-done")
            if not clip.done:
                events.mark("clip")
        work.end("clip", began)

    def _on_scaler(self, event: ScalerStep) -> None:
        hooked = self._hooked.get(id(event.optimizer))
        if hooked is not None and not self._is_over:
            hooked.is_skipped |= not hooked.num_steps
            self._events.tell(self._events.scaler_step, event)

    def _on_graphs(self, callables: Sequence[Any]) -> None:
        """What is computed to make graphs is no training: nobody is told of it."""
        with self._guard:
            CALLS.forget(part for module in callables if isinstance(module, nn.Module) for part in module.modules())

    def _on_load(self, optimizer: Optimizer) -> None:
        if not self._is_over:
            self._events.tell(self._events.optimizer_loaded, optimizer)

    def _say_resumed(self) -> None:
        """Now that a step is made, whatever the checkpoint has of the optimisers is loaded."""
        self._is_resumed = False
        optimizers = [
            {
                "optimizer": type(hooked.watched.optimizer).__name__,
                **({"name": hooked.watched.name} if hooked.watched.name else {}),
                "num_with_state": len(hooked.watched.optimizer.state),
            }
            for hooked in self._hooked.values()
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
        for hooked in self._hooked.values():
            if hooked.watched.sharing is not None:
                hooked.watched.sharing.leave(hooked.watched.optimizer, hooked.depth)
        self._hooked.clear()


def share_between_ranks(
    watched: Sequence[WatchedOptimizer], call: ranks.Call, cadences: Cadences, notices: Notices
) -> None:
    """Where parameters are split, all ranks must watch, or those that do would wait for the others for ever."""
    split = [one for one in watched if Sharing.needed(one.watched)]
    if not split:
        return
    if call.all_ranks():
        for one in split:
            one.sharing = Sharing(one.watched, cadences)
            for tag in ("grad/cosine*", "update/cosine*"):
                notices.not_measured(tag, "sketches of parameters that are split over ranks do not add up")
        return
    reason = "its parameters are split over ranks, not all of which called `sonde.watch`"
    _log.warning("gradients, weights and updates are not measured: %s; call it on every rank", reason)
    for one in split:
        for family in ("grad", "weight", "update"):
            notices.not_measured(f"{family}/*{one.at}", reason)
        one.is_blind = True
