"""Batches as a loader would give them, with what the recipe does to them on the way."""

import math
import time
from collections.abc import Iterator

import torch
from benchmarks.faults.space.axes.tasks.problem import Problem
from benchmarks.faults.space.recipe import Training
from torch import Tensor


class Batches:
    """One pass over the examples for each `iter`, in an order of its own generator.

    Attributes:
        step: The update that the next batch is for; the loop keeps it.
    """

    def __init__(self, training: Training, problem: Problem) -> None:
        self._training, self._problem = training, problem
        self._draw = torch.Generator().manual_seed(training.randomness + 2)
        self.step = 0

    def __len__(self) -> int:
        return math.ceil(len(self._problem.inputs) / self._problem.phases / self._training.loop.batch)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        data, loop, problem = self._training.data, self._training.loop, self._problem
        num = len(problem.inputs) // problem.phases
        phase = min(problem.phases - 1, self.step * problem.phases // loop.steps)
        order = torch.arange(num) if data.order == "sorted" else torch.randperm(num, generator=self._draw)
        for rows in (order + phase * num).split(loop.batch):
            if len(rows) < 2 <= loop.batch:
                continue
            if data.wait_s:
                time.sleep(data.wait_s)
            yield self._spoilt(problem.inputs[rows], problem.targets[rows])

    def _spoilt(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        data = self._training.data
        if not inputs.is_floating_point():
            return inputs, targets
        if 0 <= data.drift_step <= self.step:
            inputs = inputs + data.drift * min(1.0, (self.step - data.drift_step) / 50)
        if self.step == data.bad_step:
            inputs, targets = inputs * data.bad_factor, targets.roll(1, 0)
        if self.step == data.nan_step:
            inputs = inputs.clone()
            inputs.view(-1)[0] = torch.nan
        return inputs, targets
