"""Several processes that train together: which one this is, whether all of them watch, and where they record.

Processes meet in the store of their process group, the small table by which torch itself brought them together. Keys
begin with `sonde/`. Nothing is ever sent through the process group, and whatever goes wrong with the store is an
answer, not an exception.
"""

import itertools
import os
from datetime import timedelta
from typing import Any, final

import torch

# Ranks come to `watch` from building their model, which ends with a message to each other: they are apart by as much as
# reading a checkpoint differs between hosts. Those that will never come (`if rank == 0:`) delay the start of the
# training by this long, once; the process group's own patience is ten minutes and more.
_PATIENCE_S = 30.0

_YES, _NO = "yes", "no"

_calls = itertools.count()


def rank() -> int:
    """This process's number among those that train together; 0 where it is alone.

    Known from the environment where nothing is initialised yet (`torchrun` sets it).
    """
    return torch.distributed.get_rank() if _is_initialised() else _from_environment("RANK", 0)


def world_size() -> int:
    """How many processes train together, by the same sources as `rank`."""
    return torch.distributed.get_world_size() if _is_initialised() else _from_environment("WORLD_SIZE", 1)


@final
class Call:
    """A call of `watch`, as the other ranks see it: the n-th on one rank belongs to the n-th on every other.

    Making one says that this rank has come, and waits for nobody. Make one in every call of `watch`, whatever becomes
    of it.
    """

    def __init__(self) -> None:
        self._prefix = f"sonde/watch/{next(_calls)}"
        self._world_size = world_size()
        self._store = _store() if self._world_size > 1 else None
        if self._store is not None:
            try:
                if self._store.add(f"{self._prefix}/come", 1) == self._world_size:
                    self._store.compare_set(f"{self._prefix}/all", "", _YES)
            except (RuntimeError, NotImplementedError):  # whoever held the store is gone, or it is one of few abilities
                self._store = None

    @property
    def can_meet(self) -> bool:
        """Whether this rank hears the others, or is alone."""
        return self._world_size == 1 or self._store is not None

    def all_ranks(self, *, timeout_s: float = _PATIENCE_S) -> bool:
        """Whether every rank has called `watch`. All ranks that ask get the same answer, however late they do.

        The first whose patience ends decides for all: one that comes afterwards hears "no" at once.

        Args:
            timeout_s: How long to wait for the others, in seconds; larger means a later start where some never come.
        """
        if self._world_size == 1:
            return True
        if self._store is None:
            return False
        key = f"{self._prefix}/all"
        try:
            self._store.wait([key], timedelta(seconds=timeout_s))
        except RuntimeError:  # not all came in time
            try:
                return bool(self._store.compare_set(key, "", _NO) == _YES.encode())
            except (RuntimeError, NotImplementedError):
                return False
        try:
            return bool(self._store.get(key) == _YES.encode())
        except RuntimeError:
            return False

    def folder(self, choice: str, *, timeout_s: float = _PATIENCE_S) -> str:
        """The folder that rank 0 has chosen for the run; on rank 0 `choice` itself.

        Rank 0 waits for nobody. Where it does not call `watch`, or cannot be heard, the answer is `choice` after all:
        make it one that does not depend on the clock, or that other ranks would not choose.

        Args:
            choice: This rank's own, for a run whose folder was not named.
            timeout_s: How long to wait for rank 0's, in seconds.
        """
        if self._store is None:
            return choice
        key = f"{self._prefix}/folder"
        try:
            if rank() == 0:
                self._store.set(key, choice)
                return choice
            self._store.wait([key], timedelta(seconds=timeout_s))
            return str(self._store.get(key).decode())
        except RuntimeError:
            return choice


def _is_initialised() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _from_environment(name: str, otherwise: int) -> int:
    number = os.environ.get(name, "")
    return int(number) if number.isdigit() else otherwise


def _store() -> Any:
    """The default process group's store; None where there is none (nothing is initialised yet, or by MPI)."""
    if not _is_initialised():
        return None
    try:
        return torch.distributed.distributed_c10d._get_default_store()
    except (RuntimeError, ValueError):
        return None
