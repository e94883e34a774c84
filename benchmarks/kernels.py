"""Speed of the tensor statistics: on a GPU against its copy bandwidth, on a CPU in milliseconds.

python benchmarks/kernels.py [--quick] [--only SECTION]
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from measure import Figure, middle, print_figures, print_machine, print_table, seconds
from torch import Tensor

from sonde.kernels import Stats, TensorStats
from sonde.kernels.sketch_products import sketch_products

ROUNDS = 40
Shapes = Sequence[tuple[int, ...]]


def gpt2_small() -> list[tuple[int, ...]]:
    """124 million parameters in 148 tensors."""
    d = 768
    block = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [(50257, d), (1024, d), *block * 12, (d,), (d,)]


def character_transformer() -> list[tuple[int, ...]]:
    """2.7 million parameters in 52 tensors."""
    d = 192
    block = [(d,), (d,), (3 * d, d), (d, d), (d,), (d,), (4 * d, d), (d, 4 * d)]
    return [(96, d), (256, d), *block * 6, (d,), (d,)]


def gradients(shapes: Shapes, device: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [(1e-3 * torch.randn(shape, device=device)).to(dtype) for shape in shapes]


def num_bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def variants(shapes: Shapes, device: str) -> dict[str, tuple[Callable[[], Stats], int]]:
    """What is measured, and the bytes that each must read."""
    new, old, half = gradients(shapes, device), gradients(shapes, device), gradients(shapes, device, torch.bfloat16)
    stats, of_half = TensorStats(new), TensorStats(half)
    copies = stats.copy(old)
    size = num_bytes(new)
    return {
        "basic": (lambda: stats(new), size),
        "sketch": (lambda: stats(new, sketch=True), size),
        "histogram": (lambda: stats(new, histogram=True), size),
        "histogram and sketch": (lambda: stats(new, histogram=True, sketch=True), size),
        "difference": (lambda: stats.of_difference(new, old), 2 * size),
        "difference, histogram and sketch": (
            lambda: stats.of_difference(new, old, histogram=True, sketch=True),
            2 * size,
        ),
        "copying": (lambda: stats.copy(new), 2 * size),
        "difference to copies": (lambda: stats.of_difference(new, copies), 2 * size),
        "bfloat16": (lambda: of_half(half), size // 2),
        "bfloat16, histogram and sketch": (lambda: of_half(half, histogram=True, sketch=True), size // 2),
    }


def device_ms(call: Callable[[], object], *, queueing_ms: float = 0.5) -> float:
    """Time on the device alone: it is kept busy for as long as the host needs to queue the launches."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(4e6 * queueing_ms))  # cycles of half a nanosecond, so twice as long
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def rounds(
    calls: dict[str, Callable[[], object]], clock: Callable[[Callable[[], object]], float]
) -> dict[str, list[float]]:
    """Every call once a round, so that what disturbs one round disturbs all."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            took[name].append(clock(call))
    return took


def interval(values: Sequence[float]) -> str:
    quarters = statistics.quantiles(values, n=4)
    return f"quartiles {quarters[0]:.3g} to {quarters[2]:.3g}"


def bandwidth() -> None:
    """The kernel alone against the copy bandwidth measured in the same rounds."""
    measured = variants(gpt2_small(), "cuda")
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    sizes = {"copy": 2 * num_bytes([source]), **{name: size for name, (_, size) in measured.items()}}
    calls: dict[str, Callable[[], object]] = {"copy": lambda: target.copy_(source)}
    calls |= {name: call for name, (call, _) in measured.items()}
    took = rounds(calls, device_ms)
    copy = sizes["copy"] / middle(took["copy"]) / 1e9
    bars = {"basic": 0.7, "histogram and sketch": 0.5}
    rows = []
    for name, times in took.items():
        speed = sizes[name] / middle(times) / 1e9
        bar = bars.get(name)
        verdict = "" if bar is None else ("pass" if speed / copy >= bar else "**MISS**")
        rows.append(
            (
                name,
                f"{middle(times):.3f} ms",
                f"{speed:.2f} TB/s",
                f"{speed / copy:.0%}",
                "" if bar is None else f"≥ {bar:.0%}",
                verdict,
                interval(times) + " ms",
            )
        )
    print_table("GPT-2 small, device time", ("what", "time", "speed", "of copy", "bar", "", "spread"), rows)


def host_us(call: Callable[[], object]) -> float:
    """Time until a call returns, the device idle before it."""
    torch.cuda.synchronize()
    return seconds(call)[0] * 1e6


def host() -> None:
    """What a call costs the training thread."""
    shapes = gpt2_small()
    first, second = gradients(shapes, "cuda"), gradients(shapes, "cuda")
    stats = TensorStats(first)
    eighth = first[::8]
    changing, few, few_changing = TensorStats(first), TensorStats(eighth), TensorStats(eighth)
    copies = few.copy(eighth)
    sketch = stats(first, sketch=True).sketch
    assert sketch is not None
    eighths = f"{len(eighth)} tensors, "
    either, either_eighth = itertools.cycle([first, second]), itertools.cycle([eighth, second[::8]])
    calls: dict[str, Callable[[], object]] = {
        "same addresses": lambda: stats(first),
        "addresses changed": lambda: changing(next(either)),
        "histogram and sketch": lambda: stats(first, histogram=True, sketch=True),
        "difference": lambda: stats.of_difference(first, second),
        eighths + "histogram": lambda: few(eighth, histogram=True),
        eighths + "histogram, addresses changed": lambda: few_changing(next(either_eighth), histogram=True),
        eighths + "copying": lambda: few.copy(eighth),
        eighths + "difference to copies": lambda: few.of_difference(eighth, copies),
        "products of sketches": lambda: sketch_products(sketch, sketch),
    }
    bars = {"same addresses": 50, "addresses changed": 70} | dict.fromkeys(
        (eighths + "histogram", eighths + "difference to copies"), 35
    )
    took = rounds(calls, host_us)
    print_figures(
        f"GPT-2 small, host time of a call over {len(shapes)} tensors",
        [
            Figure(
                what=name,
                value=middle(times),
                unit="µs",
                at_most=bars.get(name),
                note=interval(times) + " µs",
            )
            for name, times in took.items()
        ],
    )


def scaling(device: str, *, quick: bool) -> None:
    """Against the number of tensors and of parameters."""
    numbers = (100, 1_000, 10_000) if quick else (100, 1_000, 10_000, 100_000)
    rows = [_scaled(f"{number:,} tensors of 1,000", [(1000,)] * number, device) for number in numbers]
    largest = {"cpu": 8, "cuda": 9}[device] - quick
    for power in range(6, largest + 1):
        side = 4096
        shapes = [(side, side)] * (10**power // side**2) or [(10**power,)]
        rows.append(_scaled(f"10^{power} parameters in {len(shapes)} tensors", shapes, device))
    print_table("Scaling", ("what", "preparing", "host time of a call", "device time", "speed"), rows)


def _scaled(what: str, shapes: Shapes, device: str) -> tuple[str, ...]:
    tensors = gradients(shapes, device)
    preparing = time.perf_counter()
    stats = TensorStats(tensors)
    preparing = time.perf_counter() - preparing
    stats(tensors)
    times = 5 if len(tensors) > 1000 else 20
    if device == "cpu":
        took = middle(seconds(lambda: stats(tensors), times=times)) * 1e3
        host_time, device_time = f"{took:.2f} ms", ""
    else:
        queueing_ms = middle([host_us(lambda: stats(tensors)) for _ in range(times)]) / 1e3
        took = middle([device_ms(lambda: stats(tensors), queueing_ms=queueing_ms) for _ in range(times)])
        host_time, device_time = f"{queueing_ms:.3f} ms", f"{took:.3f} ms"
    return what, f"{preparing * 1e3:.1f} ms", host_time, device_time, f"{num_bytes(tensors) / took / 1e6:.0f} GB/s"


def cpu() -> None:
    """On a CPU. Processor time of the calling thread is told as well: others may be busy."""
    small = gradients([(10, 10)] * 10_000, "cpu")
    stats = TensorStats(small)
    calls: dict[str, Callable[[], object]] = {
        name: call for name, (call, _) in variants(character_transformer(), "cpu").items()
    }
    calls["10,000 tensors of 100"] = lambda: stats(small)
    calls["the same, histogram and sketch"] = lambda: stats(small, histogram=True, sketch=True)
    processor: list[float] = []

    def clock(call: Callable[[], object]) -> float:
        before = time.thread_time()
        took = seconds(call)[0] * 1e3
        processor.append((time.thread_time() - before) * 1e3)
        return took

    took = rounds(calls, clock)
    bars = {"basic": 4.0, "10,000 tensors of 100": 15.0}
    figures = []
    for i, (name, times) in enumerate(took.items()):
        note = f"processor time {middle(processor[i :: len(calls)]):.2f}; best {min(times):.2f}, {interval(times)} ms"
        figures.append(Figure(what=name, value=middle(times), unit="ms", at_most=bars.get(name), note=note))
    print_figures("2.7 million parameters in 52 tensors on a CPU", figures)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the tensor statistics.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, to see that it works")
    parser.add_argument("--only", choices=("cpu", "bandwidth", "host", "scaling"), action="append")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wanted = options.only or (["bandwidth", "host", "scaling"] if device == "cuda" else ["cpu", "scaling"])
    print("## Kernels\n")
    print_machine(("numpy", "torch", *(["triton"] if device == "cuda" else [])), Path())
    if device == "cuda":
        print(f"- {torch.cuda.get_device_name()}, {ROUNDS} rounds, medians")
    sections: dict[str, Callable[[], None]] = {
        "cpu": cpu,
        "bandwidth": bandwidth,
        "host": host,
        "scaling": lambda: scaling(device, quick=options.quick),
    }
    for name in wanted:
        sections[name]()


if __name__ == "__main__":
    main()
