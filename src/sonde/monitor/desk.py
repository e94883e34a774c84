"""Where the numbers of an iteration are gathered, and from where they are sent off without waiting for the device."""

import time
from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.histograms import NUM_BINS
from sonde.monitor.assembly import now
from sonde.monitor.budget import Budget
from sonde.monitor.epochs import Epoch
from sonde.monitor.notices import Notices
from sonde.monitor.optimizers import Optimised
from sonde.monitor.pipeline import Pipeline
from sonde.monitor.probing import Probing
from sonde.monitor.schedule import Schedule
from sonde.monitor.sheets import Key, Sheet
from sonde.monitor.starvation import Starvation
from sonde.monitor.transport import NOTHING, AtOnce, Delivery, PinnedRing, Transport

_ROOM_FOR_PROBES = 16_384  # numbers a step


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

    def move_to(self, device: torch.device) -> None:
        """The parameters are on this device, or were moved to it."""
        self.device = device
        self.budget = Budget(self._share, device, floor_s=self._floor_s)
        self._transport: Transport = PinnedRing(device, self._most_values()) if device.type == "cuda" else AtOnce()

    def _most_values(self) -> int:
        tensors = sum(len(o.watched) for o in self._optimised.values())
        rotating = -(-tensors // self._schedule.cadences.rotating.interval_steps) + len(self._optimised)
        return 4096 + _ROOM_FOR_PROBES + tensors * (2 * NUM_COLUMNS + 6) + rotating * (NUM_COLUMNS + 3 * NUM_BINS)

    @property
    def is_capturing(self) -> bool:
        """Whether the user is recording a CUDA graph: then nothing of ours may get into it."""
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

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
        sheet.time = now()
        spent = self.spent
        spent["time/step"] += began - self._last_end
        for quantity, given in counts.items():
            count = self._counted.get(quantity) if given is None else given
            if count is not None:
                spent[quantity] += count
        self._counted = {}
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
        if sheet.applied:
            self._note_times(sheet, spent, with_norms=with_norms)
        self._pipeline.put(sheet, delivery, self._transport.patience)

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

    def _note_times(self, sheet: Sheet, spent: defaultdict[str, float], *, with_norms: bool) -> None:
        elapsed = spent["time/step"]
        self._schedule.stretch, cost = self.budget.step(elapsed, with_norms=with_norms)
        shared = [optimised.sharing for optimised in self._optimised.values() if optimised.sharing is not None]
        for sharing in shared:
            sharing.wish(self._schedule.stretch)
        if not shared and self.budget.norm_steps != self._schedule.norm_steps:  # else the ranks wait for each other
            self._schedule.norm_steps = self.budget.norm_steps
            self._notices.not_measured("grad/norm", "reading all gradients takes more than the budget: only some steps")
        for quantity in ("samples", "tokens"):
            if (count := spent.pop(quantity, None)) is not None and elapsed > 0:
                sheet.host[f"throughput/{quantity}_per_s"] = count / elapsed
                self.epoch.count(quantity, count)
        self.epoch.count("steps", 1)
        if (starved := self._starvation.take()) is not None:
            spent["time/starved"] = starved
        sheet.host.update(spent)
        sheet.host.update(cost)

    def put_row(self, table: str, row: dict[str, float]) -> None:
        """Record a row that is complete."""
        if row:
            self._pipeline.put(Sheet(now(), row=(table, row)), NOTHING)

    def leave(self) -> None:
        """Let go of what belongs to the device."""
        self._transport.close()
        self._starvation.close()


def plain(value: Tensor | float) -> float:
    """As a number; waits for the device."""
    return value.detach().double().mean().item() if isinstance(value, Tensor) else float(value)
