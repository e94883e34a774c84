"""A training loop seen from inside torch: its events become the calls of a `Watch`."""

import contextlib
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.nn.modules import module as nn_module
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from sonde.config import effective
from sonde.core.records import Ending
from sonde.integrations import entries
from sonde.integrations.entries import Backward, Fetched, LossCall, Mode, Opened, Scaled
from sonde.integrations.epilogue import epilogue
from sonde.integrations.finding import alive, find, name_in_script
from sonde.integrations.losses import Losses
from sonde.integrations.parts import Part, by_line, caller, total
from sonde.integrations.passes import Passes
from sonde.integrations.runner import Script
from sonde.integrations.validation import Validation
from sonde.monitor import ranks
from sonde.monitor.guard import Guard
from sonde.monitor.watch import Watch, watch
from sonde.probes.batches import counts_of
from sonde.probes.hooks import Hook, first_tensor, take_off
from sonde.probes.seams import SCALER_STEP, ScalerStep
from sonde.store import endings

_FLOOR_S = 2e-4  # a step: nobody who changed no line expects a tiny training to take twice as long
# Where a loss comes from is asked at the first steps and now and then: it is the same at nearly all of them.
_LOOK_STEPS, _LOOK_AGAIN_STEPS = 20, 10
_ENOUGH_CALLS = 20  # of a model that gave no single number, which would be its loss
_MOST_ROOTS = 256
_FOREIGN_STEPS = 3
_MOST_RUNS = 32  # a search over settings in one script may train hundreds of times


@dataclass
class Iteration:
    """What happened since the last iteration of the loop was closed."""

    parts: list[Part] = field(default_factory=list)
    """That no optimiser has made a step for yet."""
    owned: dict[int, list[Part]] = field(default_factory=dict)
    """By the optimiser, as its `id`, that made a step for them."""
    stepped: list[int] = field(default_factory=list)
    """Optimisers that made a step, or were kept from it by a gradient scaler."""
    num_backwards: int = 0


@final
class Loop:
    """Watches the training of a script.

    Listens at the entries of torch from the moment it is made. At the end of the first backward pass outside an
    optimiser's step, or at the first step, the models and optimisers that there are are found (`find`), and the
    watching begins. Everything is done on the thread that calls `backward` first; what happens on others is ignored.
    A forked child is not watched.

    An iteration is over, with one optimiser, when after its step the next batch is fetched, a whole model is called, or
    `backward` begins: schedulers that act in between belong to it. With several it is over at the next batch, when one
    of them is about to make a second step, or when all have made one and a model is called.

    Several calls of `backward` to a step are added up: from one line of the script they are micro-steps, from several
    lines parts of the loss, named by the variables they are called on. Where several optimisers have losses of their
    own there is no loss of the whole, but one for each optimiser, `loss/part@<its name>`.

    An optimiser that comes later and trains parameters of a watched one, has its name in the script, or makes three
    steps in a row while those make none, begins another training, whose run is `<run>-2` and so on: folds, or a second
    phase. Other late ones are not measured.

    Args:
        script: What is run.
        start: The folder in which it was started.
    """

    def __init__(self, script: Script, start: Path) -> None:
        self._script, self._start = script, start
        self._settings = script.settings or effective()
        self._stderr = sys.stderr
        self._guard = Guard(self._fail, strict=False)
        self._pid, self._thread = os.getpid(), 0
        self._watch: Watch | None = None
        self._folder, self._num_runs = script.run, 0
        self._foreign: tuple[int, int] = (0, 0)
        """An optimiser that is not watched, as its `id`, and its steps since the last of one that is."""
        self._optimizers: dict[int, tuple[str, Optimizer]] = {}
        self._names: set[str] = set()
        """What the script called them when the watching began …"""
        self._former: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        """… and those of trainings that are over."""
        self._failed = self._refused = self._finished = False
        self._depth = 0
        """Of modules that call each other, while all are followed."""
        self._called: dict[int, weakref.ref[nn.Module]] = {}
        self._roots: dict[int, weakref.ref[nn.Module]] = {}
        self._after_hooks: dict[int, Callable[[], None]] = {}
        self._num_without_loss: Counter[int] = Counter()
        """By the `id` of a model: how often it gave no single number."""
        self._in_step: list[int] = []
        self._closure_losses = 0
        self._in_backward = 0
        """How many are under way: checkpointing calls one within another."""
        self._tries_left = 3  # looking for optimisers takes a while; a script may do without any
        self._now = Iteration()
        self._num_micro, self._num_closed = 1, 0
        self._is_looking, self._uses_scaler = True, False
        """Whether it is asked where the losses of this iteration come from."""
        self._losses, self._passes = Losses(), Passes()
        self._validation = Validation(self._passes)
        self._waiting: Fetched | None = None
        """A batch of a loader that was not trained on before."""
        self._told: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._undo: list[Callable[[], None]] = []
        self._unfollow: list[Callable[[], None]] = []
        self._step_hooks: list[Any] = []
        self._is_compiling = False
        self._listen()

    def _listen(self) -> None:
        seams: list[tuple[Any, Callable[[Any], None]]] = [
            (entries.BACKWARD, self._on_backward),
            (entries.SCALE, self._on_scale),
            (entries.LOADER_ITER, self._on_opened),
            (entries.LOADER_NEXT, self._on_fetch),
            (entries.TRAIN, self._on_mode),
            (entries.COMPILE, self._on_compile),
            (entries.COMPILE_IN_PLACE, self._on_compile),
            (entries.SCRIPT, self._on_script),
            (SCALER_STEP, self._on_scaler_step),
            *((seam, self._on_loss) for seam in entries.LOSSES),
            *((seam, self._on_zero_grad) for seam in entries.ZERO_GRADS),
        ]
        for seam, listener in seams:
            self._undo.append(seam.listen(self._guarded(listener)))
        self._hook_steps(lambda function: function)
        # Until the models are known. Afterwards only they have a hook: these cost every module some microseconds.
        self._unfollow = [
            nn_module.register_module_forward_pre_hook(self._guarded(self._entered)).remove,
            nn_module.register_module_forward_hook(self._guarded(self._left), always_call=True).remove,
        ]
        os.register_at_fork(after_in_child=self.forget)

    def _hook_steps(self, wrap: Callable[[Any], Any]) -> None:
        for handle in self._step_hooks:
            handle.remove()
        self._step_hooks = [
            register_optimizer_step_pre_hook(wrap(self._guarded(self._before_step))),
            register_optimizer_step_post_hook(wrap(self._guarded(self._after_step))),
        ]

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        is_compiling, this_thread = torch.compiler.is_compiling, threading.get_ident

        def call(*args: Any) -> None:
            if self._finished or is_compiling() or (self._thread and self._thread != this_thread()):
                return
            with self._guard:
                function(*args)

        return call

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self._say(f"Sonde: a part of the watching has failed and goes on without: {error!r}")

    def _say(self, text: str) -> None:
        if self._settings.config.console != "quiet" and not ranks.rank():
            with contextlib.suppress(OSError, ValueError):  # closed by the script
                print(text, file=self._stderr, flush=True)

    # Finding what is trained.

    def _entered(self, module: nn.Module, _args: Any) -> None:
        self._depth += 1
        if self._depth == 1 and not self._in_backward and torch.is_grad_enabled() and len(self._called) < _MOST_ROOTS:
            self._called.setdefault(id(module), weakref.ref(module))

    def _left(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            self._after_root(module, args, output)

    def _stop_following(self) -> None:
        for remove in self._unfollow:
            remove()
        self._unfollow = []
        self._depth = 0

    def _on_compile(self, _what: Any) -> None:
        """Torch warns about hooks on all modules where it compiles one, and compiles them along."""
        self._stop_following()
        if not self._is_compiling:
            self._is_compiling = True
            # Not to be traced into a compiled optimiser step. Importing the compiler takes others a second.
            self._hook_steps(cast("Any", torch.compiler.disable))

    def _on_script(self, what: Any) -> None:
        """Hooks would be scripted along."""
        if isinstance(what, nn.Module):
            take_off(what.modules())
            self._roots = {key: ref for key, ref in self._roots.items() if ref() is not what}

    def _begin(self, optimizer: Optimizer | None = None) -> None:
        """Start to watch, if there is anything to watch: this optimiser, or all that there are."""
        if self._watch is not None or self._refused:
            return
        if self._num_runs == 0 and alive(Watch):
            self._refused = True
            self._say("Sonde: the script watches its training itself")
            return
        called = [module for ref in self._called.values() if (module := ref()) is not None]
        optimizers = alive(Optimizer) if optimizer is None else [optimizer]
        found = find(called, optimizers, lambda: alive(nn.Module), name_in_script)
        if not found.optimizers:
            return
        self._stop_following()
        self._thread = threading.get_ident()
        if self._folder is None and ranks.world_size() == 1:
            stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
            self._folder = self._start / self._settings.config.runs / f"{self._script.name}-{stamp}"
        self._num_runs += 1
        run = self._folder
        if run is not None and self._num_runs > 1:
            run = run.with_name(f"{run.name}-{self._num_runs}")
        try:
            self._watch = watch(
                found.models,
                found.optimizers,
                run=run,
                config={"script": self._script.target, "args": list(self._script.args)},
                settings=self._settings,
                micro="sum",
                floor_s=_FLOOR_S,
            )
        except Exception as error:  # the disk, another process that records there: the training goes on
            self._refused = True
            self._say(f"Sonde: this training is not watched: {error}")
            return
        endings.watch(self)
        self._optimizers = {id(optimizer): (name, optimizer) for name, optimizer in found.optimizers.items()}
        self._names = {name for one in found.optimizers.values() if (name := name_in_script(one)) is not None}
        self._say(f"Sonde: watching {_listed(found.models)} with {_listed(found.optimizers)}: {self._watch.path}")
        for model in found.models.values():
            self._follow(model)
        for module in called:
            if _label(module) == self._validation.source and id(module) not in self._roots:
                self._follow(module)

    def _follow(self, module: nn.Module) -> None:
        """Be told when a whole model is called. A hook of ours is a no-op in copies, files and compiled regions."""
        if getattr(module, "_compiled_call_impl", None) is not None or isinstance(module, torch.jit.ScriptModule):
            return
        self._roots[id(module)] = weakref.ref(module)
        before, after = Hook(self._guarded(self._before_root)), Hook(self._guarded(self._after_root))
        self._undo.append(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        self._after_hooks[id(module)] = module.register_forward_hook(after).remove
        self._undo.append(self._after_hooks[id(module)])

    # What the training does.

    def _before_root(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._in_backward or self._in_step or self._watch is None:
            return
        is_evaluation = self._validation.called(module)
        if len(self._optimizers) == 1 or len(self._now.stepped) == len(self._optimizers) or is_evaluation:
            known = set(module._forward_pre_hooks)
            self._close()
            for key, hook in list(module._forward_pre_hooks.items()):
                if key not in known:  # attached for the iteration that begins with this very call, which torch misses
                    hook(module, args, kwargs) if key in module._forward_pre_hooks_with_kwargs else hook(module, args)

    def _after_root(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._in_backward:
            return
        loss = first_tensor(output, lambda t: t.is_floating_point() and t.numel() == 1)
        if loss is not None:
            rows = counts_of(args)[0] or 1
            call = self._losses.module(_label(module), rows, loss)
            if not self._in_step:
                self._validation.computed(call, loss)
        elif id(module) in self._after_hooks:
            self._num_without_loss[id(module)] += 1
            if self._num_without_loss[id(module)] == _ENOUGH_CALLS:
                self._after_hooks.pop(id(module))()

    def _on_loss(self, event: LossCall) -> None:
        if self._in_backward or not (self._is_looking or self._validation.may_be_one(event.result)):
            return
        call = self._losses.called(event.function, event.args, event.kwargs, event.result)
        if call is not None and not self._in_step:
            self._validation.computed(call, event.result)

    def _on_zero_grad(self, what: Any) -> None:
        """What was differentiated before does not become part of a step (an attack on the inputs, a look)."""
        is_all = id(what) in self._optimizers or id(what) in self._roots
        if is_all and len(self._optimizers) == 1 and not self._in_step and not self._in_backward:
            self._now.num_backwards -= len(self._now.parts)
            self._now.parts = []

    def _on_mode(self, event: Mode) -> None:
        if id(event.module) in self._roots and not event.training:
            self._validation.eval_called()

    def _on_scale(self, event: Scaled) -> None:
        self._uses_scaler = True
        self._losses.scaled(event.loss, event.scaled)

    def _on_opened(self, event: Opened) -> None:
        self._passes.opened(event.loader, event.iterator)

    def _on_fetch(self, event: Fetched) -> None:
        self._waiting = None
        if not event.done:
            self._close()
            return
        if event.is_last:
            if self._passes.ended(event.iterator) and self._watch is not None:
                self._watch.end_of_data()
            return
        self._passes.fetched(event.iterator)
        now, training = self._passes.current, self._passes.training
        if self._watch is None or now is None or training is None:
            return
        if now is training or now.loader() is training.loader():
            self._watch.batch(event.batch, waited_s=event.waited_s)
        else:
            self._waiting = event

    def _on_backward(self, event: Backward) -> None:
        if event.done:
            self._in_backward -= 1
            if not self._in_backward and not self._in_step and self._tries_left:
                self._tries_left -= 1
                self._begin()
            return
        self._in_backward += 1
        if self._in_backward > 1:
            return
        loss, weight = _single(event.tensors), _single(event.gradients)
        if loss is None or (self._in_step and self._closure_losses):
            return  # in a line search the loss of the step is the one at its beginning
        if self._in_step:
            self._closure_losses += 1
        is_asked = self._is_looking or self._uses_scaler or self._validation.is_in_doubt
        origin = self._losses.origin(loss) if is_asked else None
        self._validation.trained(origin)
        if not self._in_step:
            self._go_on()
        given = origin.unscaled if origin is not None and origin.unscaled is not None else loss
        site, name = caller(is_weighted=event.gradients is not None)
        part = Part(site, name, given.detach() if event.retained else given, weight)
        if part.site in [other.site for other in self._now.parts] and len(self._optimizers) < 2:
            self._micro_step()
        self._now.parts.append(part)
        self._now.num_backwards += 1

    def _before_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if id(optimizer) in self._in_step:  # a subclass that calls super().step()
            self._in_step.append(id(optimizer))
            return
        self._begin()
        if self._watch is None:
            return
        if id(optimizer) not in self._optimizers and not self._begins_another(optimizer):
            self._not_watched(optimizer)
            return
        self._foreign = (0, 0)
        if id(optimizer) in self._now.stepped:
            self._close(keep=self._now.parts)
        if not self._now.parts:  # a closure will call `backward`
            self._go_on()
        if self._passes.trained():
            self._watch.epoch()
        self._in_step.append(id(optimizer))
        self._closure_losses = 0

    def _after_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if id(optimizer) in self._in_step:
            self._in_step.remove(id(optimizer))
            if id(optimizer) not in self._in_step:
                self._stepped(optimizer)

    def _on_scaler_step(self, event: ScalerStep) -> None:
        if id(event.optimizer) in self._optimizers and id(event.optimizer) not in self._now.stepped:
            self._stepped(event.optimizer)  # it was kept from it

    def _stepped(self, optimizer: Optimizer) -> None:
        now = self._now
        now.stepped.append(id(optimizer))
        if now.parts:
            now.owned[id(optimizer)] = now.parts
            now.parts = []

    def _begins_another(self, optimizer: Optimizer) -> bool:
        """Whether another training begins with this step; then it is watched."""
        key, num = self._foreign
        self._foreign = id(optimizer), num + 1 if key == id(optimizer) else 1
        known = {id(p) for _, o in self._optimizers.values() for group in o.param_groups for p in group["params"]}
        shares = any(id(p) in known for group in optimizer.param_groups for p in group["params"])
        replaces = optimizer not in self._former and name_in_script(optimizer) in self._names
        if not (shares or replaces or self._foreign[1] >= _FOREIGN_STEPS) or self._num_runs >= _MOST_RUNS:
            return False
        self._former.update(one for _, one in self._optimizers.values())
        parts, self._now.parts = self._now.parts[-1:], []
        self._let_go(None)
        self._watch, self._optimizers, self._roots = None, {}, {}
        self._now = Iteration(parts=parts, num_backwards=len(parts))
        self._num_micro, self._num_closed, self._is_looking = 1, 0, True
        self._passes.training = None
        self._validation = Validation(self._passes)
        self._begin(optimizer)
        return id(optimizer) in self._optimizers

    def _not_watched(self, optimizer: Optimizer) -> None:
        self._now.parts = []
        if optimizer not in self._told and self._watch is not None:
            self._told.add(optimizer)
            name = name_in_script(optimizer) or type(optimizer).__name__
            reason = "it was made after the watching had begun"
            self._watch.not_measured(f"grad/*@{name}", f"the optimiser {name} is not watched: {reason}")
            self._say(f"Sonde: the optimiser {name} is not watched: {reason}")

    # Iterations.

    def _close(self, keep: list[Part] | None = None) -> None:
        """If an optimiser has made a step, the iteration is over."""
        now = self._now
        if self._watch is None or not now.stepped or self._in_step:
            return
        later = now.parts if keep is None else keep
        self._now = Iteration(parts=later, num_backwards=len(later))
        self._num_closed += 1
        self._is_looking = self._num_closed < _LOOK_STEPS or self._num_closed % _LOOK_AGAIN_STEPS == 0
        self._num_micro = max(now.num_backwards - len(later), self._num_micro)  # the last of an epoch may have fewer
        if self._num_closed == 1:  # only now is it known how many calls of `backward` make a loss
            self._report()
        owned = list(now.owned.items())
        if len(self._optimizers) == 1:
            parts = [part for _, some in owned for part in some]
            lines = by_line(parts)
            if lines:
                self._validation.give_up("`backward` is called on several losses")
            self._watch.step(total(parts), parts=lines)
        elif len(owned) == 1 and len(now.stepped) > 1:  # one loss for all
            self._watch.step(total(owned[0][1]), parts=by_line(owned[0][1]))
        else:
            parts_of: dict[str, Tensor] = {}
            for key, some in owned:
                parts_of.update(by_line(some))
                if (whole := total(some)) is not None:
                    parts_of[self._optimizers[key][0]] = whole
            self._watch.step(parts=parts_of)

    def _micro_step(self) -> None:
        """The same line again, and no step in between: gradients are accumulated."""
        parts, self._now.parts = self._now.parts, []
        if self._watch is not None:
            self._watch.step(total(parts), parts=by_line(parts))

    def _go_on(self) -> None:
        """The training goes on: what was evaluated is complete."""
        if self._waiting is not None and self._watch is not None:
            self._watch.batch(self._waiting.batch, waited_s=self._waiting.waited_s)
            self._waiting = None
        if len(self._optimizers) == 1:
            self._close()
        if self._num_closed:
            self._report()

    def _report(self) -> None:
        """Record the evaluations that are complete."""
        found = self._validation.take(self._num_micro)
        if found and self._watch is not None and len(self._optimizers) == 1:
            self._watch.evaluate(loss=found.pop("loss"), metrics=found)

    # The end.

    def finish(self, error: BaseException | None) -> None:
        """The script has ended: close the run and say what there is to say."""
        if self._pid != os.getpid():
            return
        if self._watch is None and not self._refused:
            self._say("Sonde: no optimiser made a step in this process (its children are not watched)")
        with self._guard:
            self._let_go(error)
        self._leave()

    def _let_go(self, error: BaseException | None) -> None:
        """Complete and close the run of this training."""
        if self._watch is None:
            return
        with self._guard:
            if self._thread == threading.get_ident():
                self._complete(self._watch)
        endings.unwatch(self)
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self._watch.close()
        else:
            self._watch.__exit__(type(error), error, error.__traceback__)
        self._conclude()

    def _complete(self, watched: Watch) -> None:
        self._in_step.clear()
        self._close()
        self._validation.finish()
        self._go_on()
        if self._passes.is_epoch_over:
            watched.epoch()
        if self._validation.trouble:
            watched.not_measured("val/loss", f"not found: {self._validation.trouble}")

    def end(self, ending: Ending, reason: str) -> None:
        """The process is being ended from outside, while the training goes on: nothing is taken away under it."""
        self._finished = True
        endings.unwatch(self)
        if self._watch is not None:
            self._watch.end(ending, reason)
            with self._guard:
                self._conclude()

    def forget(self) -> None:
        """After a fork: this process is not the one that trains."""
        self._finished = True
        self._watch = None

    def _leave(self) -> None:
        self._finished = True
        self._stop_following()
        for undo in (*self._undo, *(handle.remove for handle in self._step_hooks)):
            undo()
        self._undo, self._step_hooks = [], []
        endings.unwatch(self)

    def _conclude(self) -> None:
        if self._watch is not None:
            judged = self._settings.config.doctor != "off"
            self._say(epilogue(self._watch.path, self._watch.findings(), judged=judged))


def _single(given: Any) -> Tensor | None:
    """What `backward` was given, where that is a single number."""
    one = given[0] if isinstance(given, list | tuple) and len(given) == 1 else given
    return one if isinstance(one, Tensor) and one.numel() == 1 else None


def _label(module: nn.Module) -> str:
    return f"module:{type(module).__name__}"


def _listed(things: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} ({type(thing).__name__})" if name else type(thing).__name__ for name, thing in things.items()
    )
