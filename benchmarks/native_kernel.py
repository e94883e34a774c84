"""Speed of the native kernel: in cache, one thread, and of whole calls against the norms alone of torch.

python benchmarks/native_kernel.py [--quick]
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import torch
from measure import Figure, print_figures, print_machine, print_table, seconds
from torch import Tensor

from sonde.kernels import TensorStats
from sonde.kernels.layouts import Layouts
from sonde.kernels.native import library
from sonde.kernels.native.native_stats import NativeStats

LISTS = ((12, 64), (60, 64), (60, 256), (148, 32), (148, 256))
IN_CACHE = (8, 16_384)  # half a MiB
MOST = 1e-3  # a repetition; short ones are made more often


def best_us(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest time of each, taken in turns: other jobs only ever add to it."""
    best = dict.fromkeys(calls, float("inf"))
    times = {name: max(1, int(MOST / seconds(call, times=3)[-1])) for name, call in calls.items()}
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], *seconds(call, times=times[name]))
    return {name: 1e6 * took for name, took in best.items()}


def in_cache(rounds: int) -> None:
    """Bytes of the tensors by time, the calling from Python included."""
    num, size = IN_CACHE
    figures = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        tensors = [(1e-3 * torch.randn(size)).to(dtype) for _ in range(num)]
        old = [tensor * 0.5 for tensor in tensors]
        num_bytes = sum(tensor.nbytes for tensor in tensors)
        for level, entry in library.load().entries.items():
            stats = NativeStats(Layouts(tensors), range(num), entry)
            calls: dict[str, Callable[[], object]] = {
                "plain": lambda s=stats, t=tensors: s(t, None, histogram=False, sketch=False),
                "histogram and sketch": lambda s=stats, t=tensors: s(t, None, histogram=True, sketch=True),
                "difference": lambda s=stats, t=tensors, o=old: s(t, o, histogram=False, sketch=False),
            }
            bars = {"plain": 8.0, "histogram and sketch": 2.5} if dtype is torch.float32 else {}
            figures += [
                Figure(
                    what=f"{str(dtype).removeprefix('torch.')}, {name}, {level}",
                    value=num_bytes * (1 + (name == "difference")) / took / 1e3,
                    unit="GB/s",
                    at_least=bars.get(name),
                )
                for name, took in best_us(calls, rounds).items()
            ]
    print_figures(f"{num} tensors of {size:,} values, one thread", figures)


def against_norms(rounds: int, threads: int) -> None:
    """Whole calls of Python, layout checks included."""
    rows = []
    for num, side in LISTS:
        tensors: list[Tensor] = [1e-3 * torch.randn(side, side) for _ in range(num)]
        stats = TensorStats(tensors)
        assert stats.path == "native", stats.reason
        took = best_us(
            {
                "norms": lambda t=tensors: torch._foreach_norm(t),
                "all": lambda s=stats, t=tensors: s(t),
                "extras": lambda s=stats, t=tensors: s(t, histogram=True, sketch=True),
            },
            rounds,
        )
        ratio = took["all"] / took["norms"]
        rows.append(
            (
                f"{num} of {side}²",
                f"{took['norms']:.0f} µs",
                f"{took['all']:.0f} µs",
                f"{ratio:.2f}",
                f"{took['extras']:.0f} µs",
                f"{took['extras'] / took['norms']:.2f}",
            )
        )
    header = ("float32", "`_foreach_norm`", "all statistics", "ratio", "with histogram and sketch", "ratio")
    print_table(f"Whole calls, torch.set_num_threads({threads})", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that it works")
    rounds = 5 if parser.parse_args().quick else 100
    print("## Native kernel\n")
    print_machine(("numpy", "torch"), Path())
    print(f"- load average {os.getloadavg()[0]:.1f}; shortest of many repetitions, taken in turns")
    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        if threads == 1:
            in_cache(rounds)
        against_norms(rounds, threads)


if __name__ == "__main__":
    main()
