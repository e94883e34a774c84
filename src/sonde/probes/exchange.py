"""One exchange of statistics a step between ranks that hold pieces of one model, whatever happens on one of them."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.optim import Optimizer

from sonde.kernels.merging import absent_rows
from sonde.probes.agreement import Agreement
from sonde.probes.shards import Shards, local_part


class Section(NamedTuple):
    """Statistics of some parameters that are exchanged in a step: of their gradients, weights or updates."""

    key: Hashable
    """Says what of which: sections of equal keys have equal members, on all ranks."""
    members: Sequence[int]
    """Places of the parameters in the optimiser's list."""
    num_bins: int = 0
    """Where it is made of histograms (`all_counts`), not of rows of statistics: their bins."""


@final
class Exchange:
    """Statistics of the pieces of an optimiser's parameters, made into those of the whole ones.

    A step goes `begin`, then `offer` for each of `sections` (in any order, or not at all), then `finish`, which sends
    one message for each process group, and a second one where there are histograms. What is sent follows from the
    parameters and the agreed cadences alone: a rank on which a measurement failed, or a gradient is None, sends empty
    rows, so that nobody waits for it.

    `begin` belongs into the optimiser's step pre-hook at the latest, `finish` into its post-hook, where all ranks of a
    sharded model pass. Neither closing nor anything else that one rank may do alone sends anything. A rank that closes
    earlier than the others calls `leave`: it goes on sending empty rows until all have heard of it, and all stop at the
    same step.

    Args:
        parameters: The optimiser's, in its order; the same on all ranks of a group, and all on one device.
        plan: What is due in a step, by the agreement's `due` and `slots` and nothing that could differ between ranks.

    Attributes:
        agreement: At which steps. Set its `wish` whenever this rank's changes.
        sections: What is due in the step that has begun; empty where nothing is, and after the end.
    """

    def __init__(self, parameters: Sequence[Tensor], plan: Callable[[Agreement], Sequence[Section]]) -> None:
        self._parameters, self._plan = list(parameters), plan
        self._device = local_part(parameters[0]).device if parameters else torch.device("cpu")
        self._shards: dict[tuple[Hashable, ...], Shards] = {}
        self._offered: dict[Hashable, Tensor] = {}
        self._begun = False
        self.agreement = Agreement(self._device)
        self.sections: Sequence[Section] = ()

    def replace(self, parameters: Sequence[Tensor]) -> None:
        """The optimiser has other parameters, from its next step on; on all ranks."""
        self._parameters = list(parameters)
        self._shards.clear()

    def begin(self) -> None:
        """A step begins, or soon will (gradients are clipped for it): until it is finished, again does nothing."""
        if self._begun:
            return
        self._begun = True
        self._offered.clear()
        self.agreement.begin()
        self.sections = () if self.agreement.over else self._plan(self.agreement)

    def offer(self, section: Section, present: Sequence[int], values: Tensor) -> None:
        """Give a section's statistics, as they are on this rank.

        Args:
            section: One of `sections`.
            present: Those of its members that have values to measure here, in its order.
            values: Of their local parts: rows, float64 (len(present), 7); or histograms, int64 (len(present), bins).
        """
        if len(present) != len(section.members):
            absent = self._absent(section, 1)[0]
            found = dict(zip(present, values, strict=True))
            values = torch.stack([found.get(member, absent) for member in section.members])
        if len(values) != len(section.members):
            raise ValueError(f"{len(section.members)} rows were wanted of {section.key!r}, got {len(values)}.")
        self._offered[section.key] = values.to(self._device, torch.int64 if section.num_bins else torch.float64)

    def finish(self) -> Mapping[Hashable, Tensor]:
        """The step is over: exchange. Of each of `sections` the values of its members, all of them, on every rank.

        A row whose COUNT and NONFINITE are 0 is of a tensor that had no value on any rank: it was not measured.

        Raises:
            RuntimeError: a message failed. This rank will send no other.
        """
        sections, self.sections, self._begun = self.sections, (), False
        found: dict[Hashable, Tensor] = {}
        try:
            if rows := [section for section in sections if not section.num_bins]:
                whole, word = self._of(rows).gather(self._joined(rows), word=self.agreement.wish)
                self.agreement.hear(word)
                found |= _apart(rows, whole)
            if counts := [section for section in sections if section.num_bins]:
                found |= _apart(counts, self._of(counts).add_up(self._joined(counts)))
        except BaseException:
            self.agreement.stretch = float("inf")
            raise
        finally:
            self._offered.clear()
        return found

    def leave(self, optimizer: Optimizer, *, depth: int = 0) -> None:
        """Go, in step with the others: the optimiser's next steps still send empty rows until all have agreed to stop.

        Sends nothing itself. Where the training is over, so is this.

        Args:
            optimizer: Whose parameters they are.
            depth: Of its `step` calls that are under way, one inside the other: 0 between steps.
        """
        self.agreement.wish = float("inf")
        if self.agreement.over:
            return

        def before(*_: Any) -> None:
            nonlocal depth
            depth += 1
            if depth == 1:
                self.begin()

        def after(*_: Any) -> None:
            nonlocal depth
            depth -= 1
            if depth > 0:
                return
            self.finish()
            if self.agreement.over:
                for handle in handles:
                    handle.remove()
                self._parameters.clear()

        disable: Any = torch.compiler.disable
        handles = [
            optimizer.register_step_pre_hook(disable(before)),
            optimizer.register_step_post_hook(disable(after)),
        ]

    def _of(self, sections: Sequence[Section]) -> Shards:
        key = tuple(section.key for section in sections)
        if key not in self._shards:
            self._shards[key] = Shards([self._parameters[i] for section in sections for i in section.members])
        return self._shards[key]

    def _joined(self, sections: Sequence[Section]) -> Tensor:
        offered = [(section, self._offered.get(section.key)) for section in sections]
        return torch.cat([self._absent(s, len(s.members)) if values is None else values for s, values in offered])

    def _absent(self, section: Section, num: int) -> Tensor:
        if section.num_bins:
            return torch.zeros(num, section.num_bins, dtype=torch.int64, device=self._device)
        return absent_rows(num, self._device)


def _apart(sections: Sequence[Section], values: Tensor) -> dict[Hashable, Tensor]:
    sizes = [len(section.members) for section in sections]
    return {s.key: part for s, part in zip(sections, torch.split(values, sizes), strict=True)}
