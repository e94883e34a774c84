"""One training of a kind, told by a few plain values, and those that a kind and a seed stand for."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.faults.space.plan import RATES, TWINS, Piece
from benchmarks.faults.wild.faults import WILD, drawn
from benchmarks.faults.wild.kind import KINDS


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training.

    Args:
        kind: By name.
        seed: What the faults are drawn by, and the data and weights together with the replicate.
        replicate: Of trainings that differ in chance alone.
        rate: Factor of the learning rates that the kind is written with.
        fault: By name, "" for none.
        strength: Of the fault.
    """

    kind: str
    seed: int
    replicate: int = 0
    rate: float = 1.0
    fault: str = ""
    strength: float = 0.0

    @property
    def family(self) -> str:
        """As the space's families are called."""
        return WILD + self.kind

    @property
    def key(self) -> str:
        """Of the recorded rows."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def pieces(kind: str, seed: int, *, replicates: int = 3, num_faults: int = 3) -> Iterator[Piece]:
    """All trainings of a kind and a seed; of replicates the first is recorded."""
    healthy, twin = Case(kind=kind, seed=seed), Case(kind=kind, seed=seed + TWINS)
    faults = drawn(KINDS[kind].has, num_faults, seed=f"{kind} {seed}")
    faulty = [replace(twin, fault=it.name, strength=it.draw(f"{kind} {seed} {it.name}")) for it in faults]
    for i in range(replicates):
        here, there = replace(healthy, replicate=i), replace(twin, replicate=i)
        yield Piece(training=here, role="healthy", watched=i == 0, group=healthy.key)
        for factor in RATES:
            other = replace(healthy, rate=factor)
            yield Piece(training=replace(other, replicate=i), role="rate", watched=False, strength=factor,
                        twin=here.key, group=other.key)  # fmt: skip
        yield Piece(training=there, role="twin", watched=i == 0, group=twin.key)
        for case in faulty:
            yield Piece(training=replace(case, replicate=i), role="faulty", watched=i == 0, fault=case.fault,
                        strength=case.strength, twin=there.key, group=case.key)  # fmt: skip
