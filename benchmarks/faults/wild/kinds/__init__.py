"""The kinds: importing this enters them all."""

from benchmarks.faults.wild.kinds import (
    counts,
    curves,
    density,
    equations,
    graphs,
    images,
    optimisers,
    pairs,
    rewards,
    sequences,
    transfer,
)

__all__ = [
    "counts",
    "curves",
    "density",
    "equations",
    "graphs",
    "images",
    "optimisers",
    "pairs",
    "rewards",
    "sequences",
    "transfer",
]
