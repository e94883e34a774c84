"""Batches of a loader, each with the time that the training waited for it."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def timed(batches: Iterable[T], take: Callable[..., None], over: Callable[[], None]) -> Iterator[T]:
    """The same batches; `iter` is called once, as a plain loop would.

    Args:
        batches: A loader, or anything else that gives batches.
        take: Told of each before it is used: the seconds that it took (`waited_s`), and those of them in which this
            thread worked (`worked_s`).
        over: Called when there are no more.
    """
    iterator = iter(batches)
    while True:
        started, worked = time.perf_counter(), time.thread_time()
        try:
            batch = next(iterator)
        except StopIteration:
            over()
            return
        take(batch, worked_s=time.thread_time() - worked, waited_s=time.perf_counter() - started)
        yield batch
