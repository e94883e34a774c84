"""The iteration of the training loop that is under way."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sonde.core.frames import Float32
from sonde.core.records import Float64
from sonde.core.tags import check_tag
from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.histograms import NUM_BINS
from sonde.monitor.budget import Budget
from sonde.monitor.epochs import Epoch
from sonde.monitor.guard import Guard
from sonde.monitor.mailbox import Mailbox
from sonde.monitor.messages import ExamplesMessage, RowMessage, StepMessage, TensorMessage
from sonde.monitor.misuse import NotANumber
from sonde.monitor.optimizer_hooks import Steps
from sonde.monitor.probe_set import ProbeSet
from sonde.monitor.starvation import Starvation
from sonde.monitor.transport import NOTHING, AtOnce, Delivery, PinnedRing, Transport
from sonde.probes.optimizers import WatchedOptimizer
from sonde.probes.probe import Reading, Row, step_row
from sonde.probes.schedule import Schedule

_ROOM_FOR_PROBES = 16_384  # numbers a step
_COUNTED = ("samples", "tokens")


class Iteration:
    """What the iteration has taken so far; closed, it is a message to the background.

    Args:
        device: Where the parameters are.
        watched: The optimisers.
        schedule: What is measured when.
        mailbox: Where messages go.
        guard: Keeps our faults from the training.
        share: Of the step time that the watching may take.
        floor_s: Seconds a step that it may always take.
    """

    def __init__(
        self,
        device: torch.device,
        watched: Sequence[WatchedOptimizer],
        schedule: Schedule,
        mailbox: Mailbox,
        guard: Guard,
        *,
        share: float,
        floor_s: float | None,
    ) -> None:
        self._watched, self._schedule, self._mailbox = watched, schedule, mailbox
        self._guard, self._share, self._floor_s = guard, share, floor_s
        self.move_to(device)
        self.spent: defaultdict[str, float] = defaultdict(float)
        """Seconds, samples and tokens since the last step."""
        self._counted: dict[str, int] = {}
        """Samples and tokens of the batches of this iteration."""
        self.epoch = Epoch()
        self._starvation = Starvation()
        self._last_end = time.perf_counter()

    def move_to(self, device: torch.device) -> None:
        """The parameters are on this device, or were moved to it."""
        self.device = device
        self.on_gpu = device.type == "cuda"
        self.budget = Budget(self._share, device, floor_s=self._floor_s)
        self._transport: Transport = PinnedRing(device, self._most_values()) if self.on_gpu else AtOnce()

    def _most_values(self) -> int:
        tensors = sum(len(watched.watched) for watched in self._watched)
        rotating = -(-tensors // self._schedule.cadences.rotating.interval_steps) + len(self._watched)
        return 4096 + _ROOM_FOR_PROBES + tensors * (3 * NUM_COLUMNS + 7) + rotating * 3 * NUM_BINS

    @property
    def is_capturing(self) -> bool:
        """Whether the user is recording a CUDA graph: then nothing of ours may get into it."""
        return self.on_gpu and torch.cuda.is_current_stream_capturing()

    def restart(self, epoch: int) -> None:
        """Go on from a checkpoint, in the epoch after this one."""
        self.spent, self.epoch = defaultdict(float), Epoch(epoch)

    def count(self, counts: Mapping[str, int]) -> None:
        """A batch of this iteration has so many samples and tokens."""
        for quantity, count in counts.items():
            self._counted[quantity] = self._counted.get(quantity, 0) + count

    def begin(self, part: str) -> float:
        """A part of our work begins; what `end` wants to know."""
        return self.budget.begin(part) if self.on_gpu and not self.is_capturing else time.perf_counter()

    def end(self, part: str, began: float) -> float:
        """It is over; when."""
        if self.on_gpu:
            return self.budget.end(part, began)
        ended = time.perf_counter()
        self.budget.own_s += ended - began
        return ended

    def close(
        self,
        loss: Any,
        parts: Mapping[str, Any],
        counts: Mapping[str, int],
        steps: Steps,
        probes: ProbeSet,
        began: float,
    ) -> None:
        """It is over: send off what is known of it, and begin the next.

        Args:
            loss: Its loss, and
            parts: what that is made of.
            counts: Its samples and tokens, where the user says them.
            steps: What its optimisers have done.
            probes: What has been measured.
            began: When we did, on the budget's clock.
        """
        spent = self.spent
        spent["time/step"] += began - self._last_end
        for quantity, count in {**self._counted, **counts}.items():
            spent[quantity] += count
        self._counted = {}
        is_over = bool(steps.applied or steps.skipped)  # else a micro-step, whose time is the step's
        readings = probes.collect() if is_over else probes.discard()
        if parts:
            readings.append(self._read_parts(parts))
        value: float | Tensor | None = None
        try:  # it may be anything
            value = self._value(loss)
        except NotANumber as error:
            self._guard.failed(error.named("loss"))
        except Exception as error:
            self._guard.failed(error)
        message = StepMessage(
            time=time.time(),
            applied=steps.applied,
            skipped=steps.skipped,
            loss=value,
            overflows=steps.overflows,
            readings=readings,
            host={},
        )
        delivery = self.send(message, message.host)
        if steps.applied:
            self._schedule.advance()
        if is_over:
            if probes.arm():
                self.budget.prepares_next()
            self.spent = defaultdict(float)
        self.end("step", began)
        if (in_hooks := probes.clock.take()) > 0:
            self.budget.took("hooks", in_hooks, like="pre")
        if steps.applied:
            message.samples = spent.get("samples")
            self._note_times(message.host, spent)
        self._mailbox.put(message, delivery, self._transport.patience)

    def _value(self, value: Any) -> float | Tensor | None:
        """A loss as a number, or as a tensor of one where it is on the device."""
        if type(value) is float or value is None:
            return value
        if self.on_gpu and isinstance(value, Tensor) and value.device == self.device:
            return value.detach().double().mean() if value.numel() != 1 else value
        return plain(value)

    def _numbers(self, values: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Values by tag: as numbers, or as tensors of one where they are on the device."""
        here: dict[str, float] = {}
        late: dict[str, Tensor] = {}
        for tag, given in values.items():
            with self._guard:
                check_tag(tag)
                try:
                    value = self._value(given)
                except NotANumber as error:
                    raise error.named(tag) from None
                if isinstance(value, Tensor):
                    late[tag] = value
                elif value is not None:
                    here[tag] = value
        return here, late

    def _read_parts(self, parts: Mapping[str, Any]) -> Reading:
        """The parts of a loss, each under its tag."""
        here, late = self._numbers({f"loss/part@{name}": part for name, part in parts.items()})
        return Reading(list(late.values()), partial(_parts_row, here, list(late)), num_essential=len(late))

    def left(self) -> None:
        """The training goes on: time is its own from now."""
        self._last_end = time.perf_counter()

    def send(self, message: TensorMessage, host: dict[str, float] | None = None) -> Delivery:
        """Have a message's numbers on their way; what there is no room for is left behind, detail first."""
        tensors = message.tensors()
        if not tensors:
            return NOTHING
        delivery = None if self.is_capturing else self._transport.send(tensors)
        if delivery is None and not self.is_capturing:
            message.drop_detail()
            delivery = self._transport.send(message.tensors(), essential=True)
            if host is not None:
                host["monitor/dropped"] = 1.0
        if delivery is None:  # the step still counts
            message.drop_tensors()
            return NOTHING
        message.let_go()
        return delivery

    def put_row(self, table: str, values: Mapping[str, Any]) -> None:
        """A row that belongs to the last step, by tags; those that are no tags or no numbers are left out."""
        here, late = self._numbers(values)
        if here or late:
            message = RowMessage(time.time(), table, here, late)
            self._mailbox.put(message, self.send(message))

    def put_examples(self, losses: Float32) -> None:
        """The losses of the examples of an evaluation, which belongs to the last step."""
        self._mailbox.put(ExamplesMessage(time.time(), losses))

    def end_epoch(self) -> None:
        """An epoch is over, with the last step."""
        self.put_row("epoch", self.epoch.close())

    def _note_times(self, host: dict[str, float], spent: dict[str, float]) -> None:
        elapsed = spent["time/step"]
        if (starved := self._starvation.take(elapsed)) is not None:
            spent["time/starved"] = starved
        self._schedule.stretch, cost = self.budget.step(elapsed)
        for watched in self._watched:
            if watched.sharing is not None:
                watched.sharing.wish(self._schedule.stretch)
        for quantity in _COUNTED:
            if (count := spent.pop(quantity, None)) is not None and elapsed > 0:
                self.epoch.count(quantity, count)
                host[f"throughput/{quantity}_per_s"] = count / elapsed
        self.epoch.count("steps", 1)
        host.update(spent)
        host.update(cost)

    def leave(self) -> None:
        """Let go of what belongs to the device."""
        self._transport.close()
        self._starvation.close()


def plain(value: Any) -> float:
    """As a number; waits for the device.

    Raises:
        NotANumber: it is none.
    """
    if not isinstance(value, Tensor):
        try:
            if not isinstance(value, str | bytes):  # "0.3" would pass
                return float(value)
        except (TypeError, ValueError):
            pass
        raise NotANumber(value)
    value = value.detach()
    return float(value.item() if value.numel() == 1 and not value.is_complex() else value.double().mean().item())


def _parts_row(here: Mapping[str, float], late: Sequence[str], numbers: Float64) -> Sequence[Row]:
    return [step_row({**here, **dict(zip(late, numbers.tolist(), strict=False))})]
