"""Which column of a log says the step, and which one the time."""

from collections.abc import Iterable

# In order of preference: what counts updates before what counts calls of the logger, epochs last.
_STEPS = (
    "global_step",
    "trainer/global_step",
    "train/global_step",
    "step",
    "steps",
    "iteration",
    "iterations",
    "iter",
    "num_updates",
    "_step",
    "batch",
    "epoch",
    "epochs",
)
_TIMES = ("_timestamp", "timestamp", "wall_time", "walltime", "wall time", "datetime", "date", "time")


def step_columns(names: Iterable[str]) -> list[str]:
    """The columns that may say the step, the best first.

    Example:
        >>> step_columns(["epoch", "Step", "loss"])
        ['Step', 'epoch']
    """
    return _named(names, _STEPS)


def time_columns(names: Iterable[str]) -> list[str]:
    """The columns that may say the time, the best first."""
    return _named(names, _TIMES)


def is_epoch(name: str) -> bool:
    """Whether a step column counts epochs.

    Example:
        >>> is_epoch("Epoch"), is_epoch("step")
        (True, False)
    """
    return name.strip().lower() in ("epoch", "epochs")


def _named(names: Iterable[str], known: tuple[str, ...]) -> list[str]:
    by_name = {name.strip().lower(): name for name in names}
    return [by_name[name] for name in known if name in by_name]
