"""The loop that most trainings share, written as users write theirs, with every slip that a recipe may ask for."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from benchmarks.faults.scenario import Session
from benchmarks.faults.space import two_player, wiring
from benchmarks.faults.space.axes import optimisers, precisions, schedules
from benchmarks.faults.space.axes.tasks import catalogue as tasks
from benchmarks.faults.space.axes.tasks.problem import Problem
from benchmarks.faults.space.batches import Batches
from benchmarks.faults.space.faults.fault import Fault
from benchmarks.faults.space.recipe import Training
from torch import Tensor, nn

IMAGES = frozenset({"cnn", "cnn-norm", "resnet", "siamese-cnn"})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a training ended.

    Args:
        quality: Of the model: 0 perfect, 1 as good as the trivial predictor.
        reported: The validation loss that the user's own evaluation would tell at the end, over that of the trivial
            predictor; NaN where the loop never evaluates.
        step_ms: Wall time of a step, the median.
        losses: Of the steps.
    """

    quality: float
    reported: float
    step_ms: float
    losses: list[float]


def train(training: Training, session: Session, fault: Fault | None = None, strength: float = 0.0) -> Outcome:
    """Train as the recipe says, with a fault put in where one is given."""
    if fault is not None:
        training = fault.put_in(training, strength)
    torch.manual_seed(training.randomness)
    torch.set_num_threads(1)
    if training.task == "two-player":
        quality, losses, times = two_player.train(training, session)
        return Outcome(quality=quality, reported=quality, step_ms=_median(times), losses=losses)
    problem = tasks.make(training, images=training.architecture in IMAGES)
    model = wiring.build(training, problem.shape)
    if problem.pretrain is not None:
        _pretrain(model, *problem.pretrain)
    wiring.freeze(model, training.optimiser.frozen)
    if training.precision.weights != "float32":
        model.to(getattr(torch, training.precision.weights))
    return _Loop(training, problem, model).run(session)


class _Loop:
    def __init__(self, training: Training, problem: Problem, model: nn.Module) -> None:
        self.training, self.problem, self.model = training, problem, model
        self.batches = Batches(training, problem)
        self.dtype = getattr(torch, training.precision.weights)
        self.first = {name: value.clone() for name, value in model.state_dict().items()}
        self.kept: list[Any] = []
        self.optimizer = optimisers.build(training.optimiser, model)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.scaler = precisions.scaler(training.precision)
        self.losses: list[float] = []
        self.times: list[float] = []
        self.reported = float("nan")

    def run(self, session: Session) -> Outcome:
        loop, step, epoch, micro = self.training.loop, 0, 0, 0
        if self.problem.target_network:
            self.problem.target_network(self.model)
        self.model.train(loop.train_mode)
        with session.watch(self.model, self.optimizer) as watch:
            while step < loop.steps:
                for inputs, targets in watch.data(self.batches) if loop.tells_data else self.batches:
                    began = time.perf_counter()
                    self._set_rate(step, epoch)
                    loss = self._forward_backward(inputs, targets, begins=micro == 0)
                    micro = (micro + 1) % loop.accumulate
                    if micro == 0:
                        self._update(step)
                        step += 1
                        self.batches.step = step
                        self.losses.append(float(loss.detach()))
                        self._afterwards(step)
                    watch.step(loss.item() if loop.tells_floats else loss)
                    self.times.append(time.perf_counter() - began)
                    if micro == 0 and loop.evaluate_every > 0 and step % loop.evaluate_every == 0:
                        self._evaluate(watch)
                    if step >= loop.steps:
                        break
                epoch += 1
                if loop.evaluate_every == 0:
                    self._evaluate(watch)
                if loop.tells_epochs:
                    watch.epoch()
        quality = self.problem.quality(self.model.float())
        return Outcome(quality=quality, reported=self.reported, step_ms=_median(self.times), losses=self.losses)

    def _forward_backward(self, inputs: Tensor, targets: Tensor, *, begins: bool) -> Tensor:
        training, loop = self.training, self.training.loop
        if inputs.is_floating_point():
            inputs = inputs.to(self.dtype)
        if self.dtype is not torch.float32 and targets.is_floating_point():
            targets = targets.to(self.dtype)
        if self.problem.answer is not None:
            targets = self.problem.answer(self.model, inputs, targets)

        def compute() -> Tensor:
            with precisions.casting(training.precision):
                found = self.problem.loss(self.model, inputs, targets, training.loss.reduction)
            return found * training.loss.unit if training.loss.unit != 1 else found

        if loop.closure:
            return self._step_with(compute)
        if loop.zero_grad == "before" and begins:
            self.optimizer.zero_grad()
        loss = compute()
        divided = loss / loop.accumulate if loop.accumulate > 1 and loop.accumulate_scaled else loss
        self.scaler.scale(divided).backward()
        return loss

    def _step_with(self, compute: Any) -> Tensor:
        def closure() -> Tensor:
            if self.training.loop.zero_grad != "never":
                self.optimizer.zero_grad()
            loss: Tensor = compute()
            loss.backward()
            return loss

        return self.optimizer.step(closure)  # type: ignore[return-value]

    def _update(self, step: int) -> None:
        loop = self.training.loop
        if loop.closure:
            return
        if loop.zero_grad == "too-early":
            self.optimizer.zero_grad(set_to_none=False)
        if loop.clip:
            if self.training.precision.unscaled:
                self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), loop.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if loop.zero_grad == "after":
            self.optimizer.zero_grad()

    def _afterwards(self, step: int) -> None:
        loop = self.training.loop
        if self.problem.target_network and loop.sync_every and step % loop.sync_every == 0:
            self.problem.target_network(self.model)
        if step == loop.lost_step or (loop.reset == "optimiser" and loop.reset_every and step % loop.reset_every == 0):
            self.optimizer.state.clear()
        if loop.reset == "model" and loop.reset_every and step % loop.reset_every == 0 and step < loop.steps:
            self.model.load_state_dict(self.first)
        if step == loop.jump_step:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    if parameter.dim() > 1:
                        parameter.mul_(loop.jump_factor)
        if loop.kept_kb:
            self.kept.append(torch.ones(loop.kept_kb * 256))
        if loop.slower_ms:
            time.sleep(loop.slower_ms * step / 1e3)

    def _set_rate(self, step: int, epoch: int) -> None:
        factor = schedules.factor(self.training.schedule, step, steps=self.training.loop.steps, epoch=epoch)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def _evaluate(self, watch: Any) -> None:
        loop, problem = self.training.loop, self.problem
        if loop.eval_mode:
            self.model.eval()
        with torch.no_grad(), precisions.casting(self.training.precision):
            inputs, targets = problem.val_inputs, problem.val_targets
            if inputs.is_floating_point():
                inputs = inputs.to(self.dtype)
            if problem.answer is not None:
                targets = problem.answer(self.model, inputs, targets)
            loss = float(problem.loss(self.model, inputs, targets, "mean"))
        self.reported = loss / problem.trivial
        told = {"loss": loss * self.training.loss.unit} if problem.answer is None else {}
        if loop.tells_metrics or not told:
            with torch.no_grad():
                told["metrics"] = {"score": 1 - problem.quality(self.model)}  # type: ignore[assignment]
        watch.evaluate(**told)
        self.model.train(loop.train_mode)


def _pretrain(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Train for a while on what the model came from."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for rows in torch.randperm(len(inputs))[:512].repeat(4).split(32):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    optimizer.zero_grad()


def _median(times: list[float]) -> float:
    return 1e3 * sorted(times)[len(times) // 2] if times else 0.0
