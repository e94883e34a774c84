"""Where the numbers of an iteration are gathered, and from where they are sent off without waiting for the device."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.histograms import NUM_BINS
from sonde.monitor.assembly import now
from sonde.monitor.budget import Budget
from sonde.monitor.epochs import Epoch
from sonde.monitor.naps import Nap, Naps, Taken, as_number, as_parts
from sonde.monitor.notices import Notices
from sonde.monitor.optimizers import Optimised
from sonde.monitor.pipeline import Pipeline
from sonde.monitor.probing import Probing
from sonde.monitor.schedule import Schedule
from sonde.monitor.sheets import Key, Sheet
from sonde.monitor.starvation import Starvation
from sonde.monitor.transport import NOTHING, AtOnce, Delivery, PinnedRing, Transport

_ROOM_FOR_PROBES = 16_384  # numbers a step
_COUNTED = ("samples", "tokens")


class Desk:
    """The sheet of the iteration that is under way, and what it has taken so far.

    Args:
        device: Where the parameters are.
        optimised: The optimisers that are watched.
        schedule: What is measured when.
        pipeline: To which sheets go.
        notices: To say what is not measured.
        share: Of the step time that the watching may take.
        floor_s: Seconds a step that it may always take.
    """

    def __init__(
        self,
        device: torch.device,
        optimised: Mapping[int, Optimised],
        schedule: Schedule,
        pipeline: Pipeline[Sheet],
        notices: Notices,
        *,
        share: float,
        floor_s: float | None,
    ) -> None:
        self._optimised, self._schedule, self._pipeline, self._notices = optimised, schedule, pipeline, notices
        self._share, self._floor_s = share, floor_s
        self.move_to(device)
        self.sheet = Sheet(now())
        self.spent: defaultdict[str, float] = defaultdict(float)
        """Seconds, samples and tokens since the last step."""
        self._counted: dict[str, int] = {}
        """Samples and tokens of the batches of this iteration."""
        self.epoch = Epoch()
        self._starvation = Starvation()
        self._last_end = time.perf_counter()
        self._naps, self._own_s = Naps(), 0.0
        """Iterations that rested, and what the present one, if it does, has taken of us so far."""
        self._handing = threading.Lock()
        """Held from taking iterations that rested until they are queued: they stay in order."""
        self._owed: deque[Taken] = deque()
        """Of iterations that the background took: what they have taken, for the training thread to count."""
        self._thread = threading.get_ident()
        """That of the training."""

    def move_to(self, device: torch.device) -> None:
        """The parameters are on this device, or were moved to it."""
        self.device = device
        self._on_cpu = device.type == "cpu"
        self.budget = Budget(self._share, device, floor_s=self._floor_s)
        self._transport: Transport = PinnedRing(device, self._most_values()) if device.type == "cuda" else AtOnce()

    def _most_values(self) -> int:
        tensors = sum(len(o.watched) for o in self._optimised.values())
        rotating = -(-tensors // self._schedule.cadences.rotating.interval_steps) + len(self._optimised)
        return 4096 + _ROOM_FOR_PROBES + tensors * (3 * NUM_COLUMNS + 7) + rotating * 3 * NUM_BINS

    @property
    def is_capturing(self) -> bool:
        """Whether the user is recording a CUDA graph: then nothing of ours may get into it."""
        return not self._on_cpu and self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    @property
    def rests(self) -> bool:
        """Whether nothing but the loss and the learning rate is read in this iteration."""
        return self._schedule.rests

    def turn(self) -> Sheet:
        """The sheet of the iteration that is over; a new one begins."""
        sheet, self.sheet = self.sheet, Sheet(now())
        return sheet

    def restart(self, epoch: int) -> None:
        """Go on from a checkpoint, in the epoch after this one."""
        self.sheet, self.spent = Sheet(now()), defaultdict(float)
        self.epoch = Epoch(epoch)

    def count(self, counts: Mapping[str, int]) -> None:
        """A batch of this iteration has so many samples and tokens."""
        for quantity, count in counts.items():
            self._counted[quantity] = self._counted.get(quantity, 0) + count

    def note(self, sheet: Sheet, key: Key, value: Tensor | float | None) -> None:
        """Write down a loss, or a part of one."""
        if value is None:
            return
        if isinstance(value, Tensor) and value.device == self.device:
            sheet.add(key, value.detach().double().mean() if value.numel() != 1 else value)
        elif key.kind == "loss":
            sheet.loss = plain(value)
        else:
            sheet.host[f"loss/part@{key.names[0]}"] = plain(value)

    def begin(self, part: str) -> float:
        """A part of our work begins; what `end` wants to know."""
        return time.perf_counter() if self._is_light or self.is_capturing else self.budget.begin(part)

    def end(self, part: str, began: float) -> None:
        """It is over."""
        if self._is_light:
            self._own_s += time.perf_counter() - began
        else:
            self.budget.end(part, began)

    def took(self, part: str, began: float) -> None:
        """A part that nobody looks at on the device has taken the time since then."""
        seconds = time.perf_counter() - began
        if self._is_light:
            self._own_s += seconds
        else:
            self.budget.took(part, seconds, like=part)

    @property
    def _is_light(self) -> bool:
        """Whether this iteration may be closed by `doze`."""
        return self._on_cpu and self._schedule.rests

    def doze(
        self, loss: Any, parts: Mapping[str, Any] | None, counts: Mapping[str, int | None], probing: Probing
    ) -> bool:
        """Close an iteration that rests, and leave it to `flush` to complete it.

        Args:
            loss: Its loss, and
            parts: what that is made of.
            counts: Its samples and tokens, where the user says them.
            probing: What is measured beside the optimisers.

        Returns:
            False where there is more to it: then nothing was done, and `close` is to be called.
        """
        began = time.perf_counter()
        sheet = self.sheet
        number, host = as_number(loss), as_parts(parts or {})
        if host is None or (number is None and loss is not None):
            return False
        if sheet.tensors or sheet.skipped or not self._is_light:
            return False
        is_step = any(optimised.applied for optimised in self._optimised.values())
        if not probing.rest(is_step=is_step):
            return False
        spent = self.spent
        spent["time/step"] += began - self._last_end
        self._take_counts(counts)
        host.update(sheet.host)
        nap = Nap(now(), number, host)
        self._thread = threading.get_ident()
        sheet.host = {}
        if is_step:
            self._schedule.iteration += 1
            self.spent = defaultdict(float)
            nap.taken = Taken(spent, self._own_s + time.perf_counter() - began)
            self._own_s = 0.0
        else:
            self._own_s += time.perf_counter() - began
        self._naps.add(nap)
        return True

    def wake(self) -> None:
        """After `doze`: hand over what rested, if it has waited for long or the next iteration does not rest."""
        if not self._schedule.rests or self._naps.are_enough:
            self.flush()

    def flush(self) -> None:
        """Hand over the iterations that rested, on the thread of the training; that is charged to the next one."""
        if is_relieved := bool(self._owed):
            self._starvation.take()  # of steps that are written already
        while self._owed:
            spent, own_s = self._owed.popleft()
            self.budget.took("step", own_s)
            self._note_times({}, spent, with_norms=False)
        with self._handing:
            naps = self._naps.take()
            if not naps:
                return
            began = time.perf_counter()
            steps = [(nap.host, nap.taken) for nap in naps if nap.taken is not None]
            elapsed = sum(taken.spent["time/step"] for _, taken in steps)
            starved = None if is_relieved else self._starvation.take()
            for host, (spent, own_s) in steps:
                if starved is not None and elapsed > 0:
                    spent["time/starved"] = starved * spent["time/step"] / elapsed
                self.budget.took("step", own_s)
                self._note_times(host, spent, with_norms=False)
            self._pipeline.put(Sheet(now(), naps=naps), NOTHING)
        self._own_s += time.perf_counter() - began

    def relieve(self) -> None:
        """Hand them over in the background where the training has not for long: it makes no steps, or slow ones."""
        if not self._naps.are_old or not self._handing.acquire(blocking=False):
            return
        try:
            naps = self._naps.take()
            for nap in naps:
                if nap.taken is None:
                    continue
                spent, own_s = nap.taken
                self._owed.append(Taken(spent.copy(), own_s))
                nap.host.update(_rates(spent))
                nap.host.update(spent)
                nap.host.update({"monitor/time": own_s, "monitor/host": own_s, "monitor/stretch": self.budget.stretch})
            if naps:
                self._pipeline.put(Sheet(now(), naps=naps), NOTHING)
        finally:
            self._handing.release()

    def put(self, sheet: Sheet, delivery: Delivery) -> None:
        """Queue a sheet behind the iterations that rested, if this is the thread of the training."""
        if threading.get_ident() == self._thread:
            self.flush()
        self._pipeline.put(sheet, delivery)

    def close(
        self,
        sheet: Sheet,
        counts: Mapping[str, int | None],
        probing: Probing,
        began: float,
        *,
        is_capturing: bool,
    ) -> None:
        """Complete a sheet and send it off.

        Args:
            sheet: Of the iteration that is over.
            counts: Its samples and tokens, where the user says them.
            probing: What is measured beside the optimisers.
            began: When we did, on the budget's clock.
            is_capturing: See there.
        """
        self.flush()
        sheet.time = now()
        spent = self.spent
        spent["time/step"] += began - self._last_end
        self._take_counts(counts)
        over = bool(sheet.applied or sheet.skipped)  # else a micro-step, whose time is the step's
        if over:
            sheet.readings = probing.collect()
        delivery = self.send(sheet, is_capturing=is_capturing)
        with_norms = self._schedule.norms_due()
        if sheet.applied:
            self._schedule.iteration += 1
        if over:
            if probing.arm():
                self.budget.prepares_next()
            self.spent = defaultdict(float)
        self.budget.end("step", began)
        self.budget.took("hooks", probing.clock.take(), like="pre")
        self.budget.took("rest", self._own_s)
        self._own_s = 0.0
        if sheet.applied:
            if (starved := self._starvation.take()) is not None:
                spent["time/starved"] = starved
            self._note_times(sheet.host, spent, with_norms=with_norms)
        self._pipeline.put(sheet, delivery, self._transport.patience)
        if over:
            probing.begin()
        else:
            probing.resume()

    def _take_counts(self, counts: Mapping[str, int | None]) -> None:
        for quantity, given in counts.items():
            count = self._counted.get(quantity) if given is None else given
            if count is not None:
                self.spent[quantity] += count
        self._counted = {}

    def left(self) -> None:
        """The training goes on: time is its own from now."""
        self._last_end = time.perf_counter()

    def send(self, sheet: Sheet, *, is_capturing: bool) -> Delivery:
        """Have a sheet's numbers on their way; what there is no room for is left behind, detail first."""
        delivery = None
        if not is_capturing:
            tensors = sheet.send_off()
            delivery = self._transport.send(tensors) if tensors else NOTHING
            if delivery is None:
                sheet.drop_detail()
                delivery = self._transport.send(sheet.send_off(), essential=True)
                sheet.host["monitor/dropped"] = 1.0
        if delivery is None:
            sheet.tensors, sheet.sizes, sheet.clips, sheet.readings = {}, [], {}, []  # the step still counts
            delivery = NOTHING
        sheet.let_go()
        return delivery

    def _note_times(self, host: dict[str, float], spent: dict[str, float], *, with_norms: bool) -> None:
        elapsed = spent["time/step"]
        self._schedule.stretch, cost = self.budget.step(elapsed, with_norms=with_norms)
        shared = [optimised.sharing for optimised in self._optimised.values() if optimised.sharing is not None]
        for sharing in shared:
            sharing.wish(self._schedule.stretch)
        if not shared and self.budget.norm_steps != self._schedule.norm_steps:  # else the ranks wait for each other
            self._schedule.norm_steps = self.budget.norm_steps
            self._notices.not_measured("grad/norm", "reading all gradients takes more than the budget: only some steps")
        for quantity in _COUNTED:
            if elapsed > 0 and quantity in spent:
                self.epoch.count(quantity, spent[quantity])
        host.update(_rates(spent))
        self.epoch.count("steps", 1)
        host.update(spent)
        host.update(cost)

    def end_epoch(self) -> None:
        """An epoch is over, with the last step."""
        self.flush()
        self._pipeline.put(Sheet(now(), row=("epoch", self.epoch.close())), NOTHING)

    def leave(self) -> None:
        """Let go of what belongs to the device."""
        self._transport.close()
        self._starvation.close()


def _rates(spent: dict[str, float]) -> dict[str, float]:
    """Samples and tokens a second; those that were counted are taken out."""
    elapsed, rates = spent["time/step"], {}
    for quantity in _COUNTED:
        if (count := spent.pop(quantity, None)) is not None and elapsed > 0:
            rates[f"throughput/{quantity}_per_s"] = count / elapsed
    return rates


def plain(value: Tensor | float) -> float:
    """As a number; waits for the device."""
    return value.detach().double().mean().item() if isinstance(value, Tensor) else float(value)
