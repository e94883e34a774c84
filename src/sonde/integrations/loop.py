"""A training loop seen from inside torch: its events become the calls of a `Watch`."""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sonde.config import effective
from sonde.core.records import Ending
from sonde.integrations import entries
from sonde.integrations.callers import caller
from sonde.integrations.entries import Fetched, LossCall, Opened, Scaled
from sonde.integrations.finding import alive
from sonde.integrations.first_update import FirstUpdate
from sonde.integrations.hand_updates import HandUpdates
from sonde.integrations.iterations import Iterations
from sonde.integrations.listening import Listening
from sonde.integrations.losses import Losses, Origin, weighed
from sonde.integrations.optimizers import Optimizers
from sonde.integrations.parts import Part
from sonde.integrations.passes import Passes
from sonde.integrations.roots import Roots, label
from sonde.integrations.runner import Script
from sonde.integrations.trainings import Trainings
from sonde.integrations.validation import Validation
from sonde.monitor import ranks
from sonde.monitor.by_hand import UpdatedByHand
from sonde.monitor.guard import Guard
from sonde.monitor.watch import Watch
from sonde.probes.batches import counts_of
from sonde.probes.seams import (
    BACKWARD,
    CLIP_BY_NORM,
    CLIP_BY_VALUE,
    GRAD,
    SCALER_STEP,
    Backward,
    Clip,
    Gradient,
    ScalerStep,
)
from sonde.store import endings
from sonde.store.environment import redactor
from sonde.streams.printing import print_or_drop

# Where a loss comes from is asked at the first steps and now and then: it is the same at nearly all of them.
_LOOK_STEPS, _LOOK_OFTEN_STEPS = 20, 200
_OFTEN, _SELDOM = 10, 50
_TRIES = 3  # looking for optimisers takes a while, and a script may do without any; for models likewise
_MOST_EARLY = 1_000
_UNKNOWN_RATES = 20  # updates by hand, after which it is said that their rate is not known
_STEP_SIZE = (
    "num_items_in_batch"  # by which Transformers tells a model how many targets the micro-batches have together
)


@final
class Loop:
    """Watches the training of a script.

    Listens at the entries of torch from the moment it is made. At the end of the first backward pass outside an
    optimiser's step, or at the first step, the models and optimisers that there are are found (`Trainings`), and the
    watching begins. Everything is done on the thread that calls `backward` first; what happens on others is ignored.
    A forked child is not watched.

    An iteration is over, with one optimiser, when after its step the next batch is fetched, a whole model is called, or
    `backward` begins: schedulers that act in between belong to it. With several it is over at the next batch, when one
    of them is about to make a second step, or when all have made one and a model is called.

    Where no optimiser makes a step and the weights change all the same between `backward` and one of these moments, the
    script updates them by hand: then that is the step.

    Args:
        script: What is run.
        start: The folder in which it was started.
        told: What the script was told, for the configuration of its runs.
    """

    def __init__(self, script: Script, start: Path, told: Callable[[], Mapping[str, Any]] = dict) -> None:
        self._settings = script.settings or effective()
        self._stderr = sys.stderr
        self._failed = False
        self._guard = Guard(self._fail, strict=False)
        self._pid = os.getpid()
        self._in_step: list[int] = []
        self._closure_losses = 0
        self._handed: Origin | None = None
        """Of what the gradients were handed over last."""
        self._in_backward = 0
        """How many are under way: checkpointing calls one within another."""
        self._tries_left = _TRIES
        self._uses_scaler = False
        self._charged_s = 0.0
        """What the watch has charged itself with since the last step, while it was called from here."""
        self._listening = Listening(self._guard)
        self._trainings = Trainings(script, start, self._settings, self._say, Optimizers(self._listening), told)
        self._iterations = Iterations()
        self._is_looking = True
        """Whether it is asked where the losses of this iteration come from."""
        self._losses, self._passes = Losses(), Passes()
        self._validation = Validation(self._passes)
        self._first = FirstUpdate()
        """Looks for updates by hand, as long as nothing is watched …"""
        self._by_hand: HandUpdates | None = None
        """… and what tells of them, once there was one."""
        self._early: deque[tuple[Tensor | float | None, Mapping[str, Tensor | float]]] = deque(maxlen=_MOST_EARLY)
        """Micro-steps before that."""
        self._waiting: Fetched | None = None
        """A batch of a loader that was not trained on before."""
        self._listen()
        self._roots = Roots(self._listening, self)

    def _listen(self) -> None:
        listening = self._listening
        listening.at(self._on_backward, BACKWARD)
        listening.at(self._on_gradient, GRAD)
        listening.at(self._on_scale, entries.SCALE)
        listening.at(self._on_opened, entries.LOADER_ITER)
        listening.at(self._on_fetch, entries.LOADER_NEXT)
        listening.at(self._on_eval, entries.EVAL)
        listening.at(self._on_compile, entries.COMPILE, entries.COMPILE_IN_PLACE)
        listening.at(self._on_scaler_step, SCALER_STEP)
        listening.at(self._on_clip, CLIP_BY_NORM, CLIP_BY_VALUE)
        listening.at(self._on_loss, *entries.LOSSES)
        listening.at(self._on_zero_grad, *entries.ZERO_GRADS)
        listening.at_steps(self._before_step, self._after_step)
        os.register_at_fork(after_in_child=self.forget)

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self._say(f"Sonde: a part of the watching has failed and goes on without: {redactor().text(repr(error))}")

    def _say(self, text: str) -> None:
        if self._settings.config.console != "quiet" and not ranks.rank():
            print_or_drop(text, self._stderr)

    @property
    def _watch(self) -> Watch | None:
        return self._trainings.watch

    # What is trained.

    def _on_compile(self, _what: Any) -> None:
        self._listening.compiles()

    def _begin(self, optimizer: Optimizer | None = None) -> None:
        """Start to watch, if there is anything to watch: this optimiser, or all that there are."""
        called = self._roots.called
        found = self._trainings.begin(called, optimizer)
        if found is not None or self._trainings.is_refused:
            self._roots.stop_following()
        if found is None:
            return
        self._listening.thread = threading.get_ident()
        endings.watch(self)
        for model in found.models.values():
            self._roots.follow(model)
        for module in called:
            if label(module) == self._validation.source and module not in self._roots:
                self._roots.follow(module)

    def _begin_another(self, optimizer: Optimizer) -> None:
        """The training that was watched is over, and this optimiser's begins."""
        self._let_go(None)
        self._trainings.forget()
        self._roots.forget()
        self._iterations.begin_anew()
        self._is_looking = True
        self._passes.training = None
        self._validation = Validation(self._passes)
        self._by_hand = None
        self._begin(optimizer)

    # What the training does.

    @property
    def is_differentiating(self) -> bool:
        """Whether `backward` is under way."""
        return self._in_backward > 0

    def before_any(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A module is about to be called, and nothing is watched yet."""
        if any(True for _ in module.parameters()):
            self._look_for_update()
            if module in self._roots:  # since now
                self.before_model(module, args, kwargs)

    def before_model(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A whole model is about to be called: a new iteration, or an evaluation."""
        if self._in_backward or self._trainings.watch is None:
            return
        is_evaluation = self._validation.called(module)
        if self._in_step:  # in a closure
            return
        num = len(self._trainings.optimizers)
        if num == 1 or len(self._iterations.stepped) == num or is_evaluation:
            self._close()

    def gave_loss(self, module: nn.Module, args: Any, kwargs: Any, loss: Tensor) -> None:
        """A whole model gave a single number, which may be the loss of the training or of an evaluation."""
        given, may_be_one = (*args, *kwargs.values()), self._validation.may_be_one(loss)
        source = label(module)
        if not may_be_one:
            self._validation.read(source, given)
        if not (may_be_one or self._is_looking or self._uses_scaler):
            return
        rows, is_share = counts_of(given)[0] or 1, kwargs.get(_STEP_SIZE) is not None
        call = self._losses.module(source, rows, loss, is_share=is_share)
        if not self._in_step:
            self._validation.computed(call, loss, given)

    def _on_loss(self, event: LossCall) -> None:
        if self._in_backward:
            return
        function, args, kwargs, result = event
        given = (*args, *kwargs.values())
        may_be_one = self._validation.may_be_one(result)
        if not may_be_one:
            self._validation.read(function, given)
        if self._is_looking or may_be_one:
            call = self._losses.called(function, args, kwargs, result)
            if call is not None and not self._in_step:
                self._validation.computed(call, result, given, lambda call: weighed(call, args, kwargs))

    def _on_zero_grad(self, what: Any) -> None:
        """What was differentiated before does not become part of a step (an attack on the inputs, a look)."""
        optimizers = self._trainings.optimizers
        if isinstance(what, nn.Module):
            self._look_for_update()
        is_watched = self._trainings.watch is not None
        if is_watched and not self._iterations.has_parts:  # nothing was, as at nearly all steps
            return
        if not is_watched:
            self._early.clear()
            self._iterations.clear()
        is_all = id(what) in optimizers or what in self._roots
        if is_all and len(optimizers) == 1 and not self._in_step and not self._in_backward:
            self._iterations.clear()

    def _on_eval(self, module: nn.Module) -> None:
        if module in self._roots:
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
            self._batch(self._watch, event)
        else:
            self._waiting = event

    def _on_backward(self, event: Backward) -> None:
        if event.done:
            self._in_backward -= 1
            if not self._in_backward and not self._in_step:
                self._differentiated()
            return
        self._look_for_update()
        self._in_backward += 1
        if self._in_backward > 1:
            return
        if self._by_hand is not None:
            self._by_hand.begins()
        tensors, gradients = event.tensors, event.gradients
        self._validation.differentiated(_listed(tensors))
        loss, weight = _single(tensors), None if gradients is None else _single(gradients)
        if loss is None and gradients is None:
            loss = _sum(_listed(tensors))
        if loss is None or (self._in_step and self._closure_losses):
            return  # in a line search the loss of the step is the one at its beginning
        if self._in_step:
            self._closure_losses += 1
        origin = self._losses.origin(loss) if self._is_looking or self._uses_scaler else None
        if origin is not None:
            self._validation.trained(origin)
        if self._is_looking:
            self._validation.trains_here()
        if not self._in_step:
            self._go_on()
        given = origin.unscaled if origin is not None and origin.unscaled is not None else loss
        site, name = caller(is_weighted=gradients is not None)
        part = Part(site, name, given.detach() if event.retained else given, weight)
        if len(self._trainings.optimizers) < 2 and self._iterations.is_repeated(part):
            whole, parts = self._iterations.micro_step()
            if self._watch is not None:
                self._step(self._watch, whole, parts)
            else:
                self._early.append((whole.detach() if isinstance(whole, Tensor) else whole, parts))
        self._iterations.add(part)

    def _differentiated(self) -> None:
        """`backward` is over, outside of any step."""
        if self._tries_left and self._watch is None:
            self._tries_left -= 1
            self._begin()
        if self._watch is None:
            if not self._trainings.is_refused:
                self._first.differentiated(self._roots.called)
        elif self._by_hand is None:
            return
        elif self._by_hand.is_touched():
            if self._passes.trained():
                self._watch.epoch()
            self._by_hand.differentiated()
            self._early.clear()
        else:
            before = self._iterations.set_aside()
            if before is not None:
                self._early.append((before.loss.detach(), {}))
            if self._tries_left and self._trainings.has_room:
                self._tries_left -= 1
                known = {id(part) for module in self._roots.called for part in module.modules()}
                self._first.differentiated(module for module in alive(nn.Module) if id(module) not in known)

    def _on_gradient(self, event: Gradient) -> None:
        """`torch.autograd.grad`: a loss, if of parameters, and if the script makes a step with what it gets."""
        if event.done:
            self._in_backward -= 1
            return
        self._in_backward += 1
        if self._in_backward > 1:
            return
        self._validation.differentiated(_listed(event.outputs))
        loss = _single(event.outputs)
        is_of_parameters = any(isinstance(one, nn.Parameter) for one in _listed(event.inputs))
        if loss is None or self._in_step or not is_of_parameters:
            return
        self._go_on()
        if event.created:
            self._iterations.nest()
            return
        self._handed = self._losses.origin(loss) if self._is_looking else None
        site, name = caller(is_weighted=False)
        self._iterations.hand_over(Part(site, name, loss.detach() if event.retained else loss))

    def _before_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if id(optimizer) in self._in_step:  # a subclass that calls super().step()
            self._in_step.append(id(optimizer))
            return
        if not self._first.is_fresh:
            self._first = FirstUpdate()
        self._early.clear()
        trainings, key = self._trainings, id(optimizer)
        if trainings.watch is None:
            self._begin()
        if trainings.watch is None:
            return
        if key not in trainings.optimizers:
            if trainings.is_another(optimizer):
                self._begin_another(optimizer)
            if trainings.watch is None or key not in trainings.optimizers:
                self._iterations.drop()
                trainings.leave_out(optimizer)
                return
        trainings.goes_on()
        if key in self._iterations.stepped:
            self._close()
        if not self._iterations.has_parts:  # a closure will call `backward`, or `torch.autograd.grad` was
            self._go_on()
            if self._handed is not None:
                self._validation.trained(self._handed)
        self._handed = None
        if self._validation.is_in_doubt:
            self._validation.settle()
            if self._iterations.num_closed:
                self._report()
        if self._passes.trained():
            trainings.watch.epoch()
        self._in_step.append(key)
        self._closure_losses = 0

    def _after_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        key, in_step = id(optimizer), self._in_step
        if key in in_step:
            in_step.remove(key)
            if key not in in_step:
                self._iterations.step(key)

    def _on_scaler_step(self, event: ScalerStep) -> None:
        key = id(event.optimizer)
        if key in self._trainings.optimizers and key not in self._iterations.stepped:
            self._iterations.step(key)  # it was kept from it

    # Updates by hand.

    def _on_clip(self, clip: Clip) -> None:
        if clip.done and self._by_hand is not None:
            self._by_hand.clipped()
        self._first.clipped(clip)

    def _look_for_update(self) -> None:
        """If the script has changed the weights itself since `backward`, that was the step."""
        if self._in_backward or self._in_step:
            return
        if self._by_hand is not None and self._by_hand.has_come():
            self._updated(self._by_hand)
        elif self._first.has_come():
            self._begin_by_hand()

    def _begin_by_hand(self) -> None:
        """The first update by hand is over: watch from now on, and record it."""
        first, self._first = self._first, FirstUpdate()
        stand_in = UpdatedByHand(first.trained(self._roots.called) or first.parameters)
        if self._watch is None:
            self._begin(stand_in)
        else:
            self._begin_another(stand_in)
        if self._watch is None:
            return
        self._tries_left = _TRIES
        by_hand = self._by_hand = HandUpdates(stand_in, first.tracked(), is_silent=first.is_silent())
        while self._early:
            self._step(self._watch, *self._early.popleft())
        self._passes.trained()
        with torch.no_grad(), first.as_before() as is_known:
            if is_known:
                stand_in.announce()
                first.clip_again()
                by_hand.await_update()
        if is_known:
            by_hand.has_come()
        self._updated(by_hand)

    def _updated(self, by_hand: HandUpdates) -> None:
        self._trainings.goes_on()
        if self._validation.is_in_doubt:
            self._validation.settle()
            if self._iterations.num_closed:
                self._report()
        by_hand.conclude()
        self._iterations.step(id(by_hand.optimizer))
        if by_hand.num_unknown_rates >= _UNKNOWN_RATES:
            self._say_rate_unknown(by_hand)

    def _say_rate_unknown(self, by_hand: HandUpdates) -> None:
        if self._watch is not None and by_hand.num_unknown_rates > by_hand.num_rates:
            self._watch.not_measured("lr", f"weights are updated by hand, {by_hand.why_no_rate}")

    # Iterations.

    def _close(self) -> None:
        """If an optimiser has made a step, the iteration is over."""
        self._look_for_update()
        watch = self._trainings.watch
        if watch is None or self._in_step or not self._iterations.stepped:
            return
        whole, parts = self._iterations.close(self._trainings.optimizers)
        num_closed = self._iterations.num_closed
        self._is_looking = _is_looked_at(num_closed)
        if num_closed == 1:  # only now is it known how many calls of `backward` make a loss
            self._report()
        if parts and len(self._trainings.optimizers) == 1:
            self._validation.give_up("`backward` is called on several losses")
        own_s, self._charged_s = self._listening.take_own_s() - self._charged_s, 0.0
        # Finding what is trained is no part of a step. Updates by hand are found when the first is over.
        if num_closed > (1 if self._by_hand is None else 2):
            watch.charge(own_s)
        self._step(watch, whole, parts)

    def _step(self, watch: Watch, whole: Tensor | float | None, parts: Mapping[str, Tensor | float]) -> None:
        began = time.perf_counter()
        watch.step(whole, parts=parts)
        self._charged_s += time.perf_counter() - began

    def _batch(self, watch: Watch, fetched: Fetched) -> None:
        began = time.perf_counter()
        watch.batch(fetched.batch, waited_s=fetched.waited_s, worked_s=fetched.worked_s)
        self._charged_s += time.perf_counter() - began

    def _go_on(self) -> None:
        """The training goes on: what was evaluated is complete."""
        if self._waiting is not None and self._watch is not None:
            self._batch(self._watch, self._waiting)
            self._waiting = None
        if len(self._trainings.optimizers) < 2:
            self._close()
        if self._validation.has_any and self._iterations.num_closed and not self._validation.is_in_doubt:
            self._report()

    def _report(self) -> None:
        """Record the evaluations that are complete."""
        found = self._validation.take(self._iterations.num_micro)
        if found and self._watch is not None and len(self._trainings.optimizers) == 1:
            self._watch.evaluate(loss=found.pop("loss"), metrics=found)

    # The end.

    def finish(self, error: BaseException | None) -> None:
        """The script has ended: close the run and say what there is to say."""
        if self._pid != os.getpid():
            return
        with self._guard:
            self._look_for_update()
        if self._watch is None and not self._trainings.is_refused:
            self._say("Sonde: no optimiser made a step in this process (its children are not watched)")
        with self._guard:
            self._let_go(error)
        self._roots.stop()
        self._listening.stop()
        endings.unwatch(self)

    def _let_go(self, error: BaseException | None) -> None:
        """Complete and close the run of this training."""
        if self._watch is None:
            return
        with self._guard:
            if self._listening.thread == threading.get_ident():
                self._complete(self._watch)
        endings.unwatch(self)
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self._watch.close()
        else:
            self._watch.__exit__(type(error), error, error.__traceback__)
        self._trainings.conclude()

    def _complete(self, watched: Watch) -> None:
        self._in_step.clear()
        self._close()
        self._validation.settle()
        self._go_on()
        if self._passes.is_epoch_over:
            watched.epoch()
        if self._by_hand is not None:
            self._say_rate_unknown(self._by_hand)
        if self._validation.trouble:
            watched.not_measured("val/loss", f"not found: {self._validation.trouble}")

    def end(self, ending: Ending, reason: str) -> None:
        """The process is being ended from outside, while the training goes on: nothing is taken away under it."""
        self._listening.is_over = True
        endings.unwatch(self)
        if self._watch is not None:
            self._watch.end(ending, reason)
            with self._guard:
                self._trainings.conclude()

    def forget(self) -> None:
        """After a fork: this process is not the one that trains."""
        self._listening.is_over = True
        self._trainings.watch = None


def _is_looked_at(iteration: int) -> bool:
    return iteration < _LOOK_STEPS or iteration % (_OFTEN if iteration < _LOOK_OFTEN_STEPS else _SELDOM) == 0


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


def _single(given: Any) -> Tensor | None:
    """What `backward` was given, where that is a single number."""
    one = given[0] if isinstance(given, list | tuple) and len(given) == 1 else given
    return one if isinstance(one, Tensor) and one.numel() == 1 else None


def _sum(tensors: Sequence[Any]) -> Tensor | None:
    """What several numbers are together that `backward` is called on at once."""
    numbers = [_single(one) for one in tensors]
    known = [number.detach() for number in numbers if number is not None]
    return sum(known[1:], start=known[0]) if len(known) == len(numbers) > 1 else None
