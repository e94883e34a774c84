"""Which trainings a family and a seed stand for: a healthy one with its rates, a repaired twin and its faults."""

from dataclasses import dataclass

from benchmarks.faults.space.drawing import draw
from benchmarks.faults.space.faults.catalogue import drawn
from benchmarks.faults.space.recipe import Training

RATES = (1 / 3, 3.0)
"""Factors of the rate that must not be clearly better for a training to count as healthy."""

TWINS = 100_000
"""Recipes that faults are put into have seeds from here on, so that no healthy training is a twin as well."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One training of a plan.

    Args:
        training: The recipe as it is trained, faults included.
        role: `healthy`, `rate`, `twin` or `faulty`.
        watched: Whether it is recorded; trainings at other rates only tell how they ended.
        fault: The name of its fault, "" for none.
        strength: Of the fault.
        twin: The key of the twin of the same replicate, "" where there is none.
        group: Equal for the replicates of one case.
    """

    training: Training
    role: str
    watched: bool
    fault: str = ""
    strength: float = 0.0
    twin: str = ""
    group: str = ""


def pieces(family: str, seed: int, *, replicates: int, num_faults: int) -> list[Piece]:
    """All trainings of a family and a seed, twins once."""
    found: dict[str, Piece] = {}

    def add(training: Training, role: str, replicate: int, **more: object) -> str:
        here = training.changed({"replicate": replicate})
        piece = Piece(training=here, role=role, watched=True, group=training.key, **more)  # type: ignore[arg-type]
        found.setdefault(here.key, piece)
        return here.key

    for replicate in range(replicates):
        healthy = draw(family, seed)
        add(healthy, "healthy", replicate)
        for factor in RATES:
            other = healthy.changed({"optimiser.rate": healthy.optimiser.rate * factor})
            found.setdefault(
                other.changed({"replicate": replicate}).key,
                Piece(training=other.changed({"replicate": replicate}), role="rate", watched=False,
                      strength=factor, twin=healthy.changed({"replicate": replicate}).key, group=other.key),
            )  # fmt: skip
        base = draw(family, seed + TWINS)
        for fault in drawn(base, num_faults):
            strength = fault.draw(base)
            twin = add(fault.twin(base), "twin", replicate)
            add(fault.put_in(base, strength), "faulty", replicate, fault=fault.name, strength=strength, twin=twin)
    return list(found.values())
