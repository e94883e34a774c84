"""What watching costs on a GPU: GPT-2 small, fp32 weights, bf16 autocast, fused AdamW, against the same unwatched.

Rounds of unwatched and watched steps alternate in one process. Batch 16 × 1024 is bound by the device, batch 4 by
launches. Steps are timed by CUDA events behind each of them; the first of a round, which begins with an idle device, is
left out. A step is *sampled* where the run itself has something from a hook for it: activations, gains, attention, the
batch, logits, phases of the step, spectra.

Usage: python benchmarks/overhead_gpu.py [--rounds 40] [--steps 10] [--warm-up 60] [--identity-steps 300] [--only-time]
    [--trace] [--large]
"""

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import sonde


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(
        self, vocabulary: int = 50257, context: int = 1024, width: int = 768, depth: int = 12, heads: int = 12
    ):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Training:
    """A model, its optimiser and one batch of random tokens."""

    def __init__(
        self,
        batch: int,
        *,
        dtype: torch.dtype | None = torch.bfloat16,
        compiled: bool = False,
        vocabulary: int = 50257,
        context: int = 1024,
        **shape: int,
    ) -> None:
        torch.manual_seed(0)
        self.model = Gpt(vocabulary, context, **shape).cuda()
        if compiled:
            torch.compiler.reset()
            self.model = torch.compile(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.ids = torch.randint(vocabulary, (batch, context + 1), device="cuda")
        self.dtype = dtype
        # Large enough to overflow at first, and whenever it has grown.
        self.scaler = torch.amp.GradScaler(
            "cuda", init_scale=2.0**30, growth_interval=20, enabled=dtype is torch.float16
        )

    def step(self) -> torch.Tensor:
        with torch.autocast("cuda", self.dtype, enabled=self.dtype is not None):
            loss = self.model(self.ids[:, :-1], self.ids[:, 1:])
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss

    def watched(self, folder: str) -> sonde.Watch:
        return sonde.watch(self.model, self.optimizer, run=f"{folder}/run", strict=True, console="quiet")


# Bit-identity.

SMALL = {"vocabulary": 1000, "context": 128, "width": 256, "depth": 4, "heads": 4}
PRECISIONS = {
    "fp32": {"dtype": None},
    "bf16 autocast": {},
    "fp16 with GradScaler": {"dtype": torch.float16},
    "torch.compile, bf16 autocast": {"compiled": True},
}


def identical(steps: int) -> None:
    """Losses, weights and random state of a watched training against two unwatched ones (the second is the control)."""
    torch.use_deterministic_algorithms(True)
    for name, settings in PRECISIONS.items():
        ends = []
        for watched in (False, False, True):
            training = Training(4, **SMALL, **settings)
            losses = []
            with tempfile.TemporaryDirectory() as folder:
                watch = training.watched(folder) if watched else None
                for _ in range(steps):
                    loss = training.step()
                    losses.append(loss.detach())
                    if watch:
                        watch.step(loss)
                if watch:
                    watch.close()
            weights = [p.detach().clone() for p in training.model.parameters()]
            ends.append([torch.stack(losses), *weights, torch.cuda.get_rng_state()])
        control, same = (all(map(torch.equal, ends[0], other)) for other in ends[1:])
        scale = f", scale {2.0**30:.0f} to {training.scaler.get_scale():.0f}" if training.scaler.is_enabled() else ""
        print(
            f"bit-identical, {name}, {steps} steps: watched {same} (two unwatched runs: {control}{scale})", flush=True
        )


def identical_apart(steps: int) -> None:
    """The same in a process of its own: deterministic algorithms must be asked for before CUDA starts."""
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    command = [sys.executable, __file__, "--only-identity", "--identity-steps", str(steps)]
    subprocess.run(command, env=environment, check=True)


# Waiting.


def no_sync(warm_up: int, steps: int = 200) -> None:
    training = Training(1)
    said = "no synchronisation"
    with tempfile.TemporaryDirectory() as folder, training.watched(folder) as watch:
        for _ in range(warm_up):
            watch.step(training.step())
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(steps):
                watch.step(training.step())
        except RuntimeError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{error}, {frame.filename}:{frame.lineno}"
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
    print(f"{steps} watched steps after {warm_up}: {said}", flush=True)


TRACED = re.compile(
    r'"name": "(cuda\w*Synchronize|cudaHostAlloc|cudaMallocHost|cudaMalloc|cudaFree|cudaFreeHost|cudaEventQuery'
    r'|cudaStreamQuery|cudaLaunchKernel\w*|cuLaunchKernel\w*|Mem(?:cpy|set) [^"]*)"'
)


def trace(batch: int = 4, steps: int = 50) -> None:
    """CUDA calls of all threads, and copies, in as many steps watched and unwatched."""
    counts = []
    for watched in (False, True):
        training = Training(batch)
        with tempfile.TemporaryDirectory() as folder:
            watch = training.watched(folder) if watched else None

            def run(num: int, training=training, watch=watch) -> None:
                for _ in range(num):
                    loss = training.step()
                    if watch:
                        watch.step(loss)

            run(110)  # every probe has had its turn once
            torch.cuda.synchronize()
            activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
            with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
                run(steps)
                torch.cuda.synchronize()
            if watch:
                watch.close()
            profiler.export_chrome_trace(f"{folder}/trace.json")
            counts.append(Counter(TRACED.findall(Path(f"{folder}/trace.json").read_text())))
    print(f"\n| in {steps} steps, batch {batch} (one synchronisation is the benchmark's) | unwatched | watched |")
    print("|---|---|---|")
    for name in sorted(counts[0] | counts[1]):
        print(f"| {name} | {counts[0][name]} | {counts[1][name]} |")


# Time.


def round_of(training: Training, watch, steps: int) -> tuple[float, list[float]]:
    """Seconds a step by the clock, and each step but the first by the device's events."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps)]
    torch.cuda.synchronize()
    started = time.perf_counter()
    for event in events:
        loss = training.step()
        if watch:
            watch.step(loss)
        event.record()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - started) / steps
    return seconds, [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(events)]


def interval(plain: list[float], watched: list[float], num: int = 4000) -> tuple[float, float]:
    """95% of the ratio of medians, by resampling rounds."""
    a, b = np.array(plain), np.array(watched)
    picks = np.random.default_rng(0).integers(len(a), size=(num, len(a)))
    ratios = np.median(b[picks], axis=1) / np.median(a[picks], axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def sampled_steps(run: sonde.Run) -> set[int]:
    patterns = ("act/rms@*", "gain/block@*", "attn/entropy@*", "batch/size*", "logits/norm", "spectrum/largest@*")
    tags = [tag for pattern in (*patterns, "time/forward", "memory/allocated") for tag in run.tags(pattern)]
    return {int(step) for tag in tags for step in run.series(tag).step}


KEPT = {
    "gradients": "grad/rms@*",
    "weights": "weight/rms@*",
    "cosines": "grad/cosine@*",
    "percentiles": "grad/p50@*",
    "updates": "update/norm@*",
    "activations": "act/rms@*",
    "gains": "gain/block@*",
    "attention": "attn/entropy@*",
}


def intervals(run: sonde.Run, since: int) -> str:
    """How many steps lie between two measurements of the same tensor or block, on average."""
    found = []
    for name, pattern in KEPT.items():
        steps = [[step for step in run.series(tag).step if step > since] for tag in run.tags(pattern)]
        gaps = [(some[-1] - some[0]) / (len(some) - 1) for some in steps if len(some) > 1]
        found.append(f"{name} {statistics.median(gaps):.1f}" if gaps else f"{name} once or never")
    return ", ".join(found)


def overhead(label: str, batch: int, rounds: int, steps: int, *, warm_up: int = 60, **shape: int) -> None:
    """Two equal trainings, one of them watched, take turns."""
    bare, training = Training(batch, **shape), Training(batch, **shape)
    plain, watched, plain_steps, watched_steps = [], [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        with training.watched(folder) as watch:
            for _ in range(warm_up):
                bare.step()
                watch.step(training.step())
            done = warm_up
            for i in range(rounds):
                for on in (False, True) if i % 2 else (True, False):
                    seconds, each = round_of(training if on else bare, watch if on else None, steps)
                    (watched if on else plain).append(seconds)
                    if on:
                        watched_steps.update(zip(range(done + 2, done + steps + 1), each, strict=True))
                        done += steps
                    else:
                        plain_steps += each
        run = sonde.load(f"{folder}/run")
        own = {
            tag: float(np.median(run.series(tag).value[warm_up:]))
            for tag in ("monitor/stretch", "monitor/time", "monitor/host", "monitor/device")
        }
        dropped = sum(len(run.series(tag).step) for tag in run.tags("monitor/dropped"))
        sampled = sampled_steps(run)
        kept = intervals(run, warm_up)
        last_stretch = float(run.series("monitor/stretch").value[-1])
        alarms = [f"{f.code} at step {f.first_step}" for f in watch.findings() if f.severity.is_alarm]
        sweeps = [event.step for event in run.events("sweep")]
    a, b = statistics.median(plain), statistics.median(watched)
    low, high = interval(plain, watched)
    with_hooks = [s for step, s in watched_steps.items() if step in sampled]
    without = [s for step, s in watched_steps.items() if step not in sampled]
    p99, p99_plain = (float(np.percentile(list(x), 99)) for x in (watched_steps.values(), plain_steps))
    print(f"\n{label}, {rounds} rounds of {steps} steps")
    print("| | unwatched | watched | ratio |\n|---|---|---|---|")
    print(f"| step, median of rounds | {a * 1e3:.2f} ms | {b * 1e3:.2f} ms | {b / a:.4f} ({low:.4f} to {high:.4f}) |")
    print(f"| 99th percentile of steps | {p99_plain * 1e3:.2f} ms | {p99 * 1e3:.2f} ms | {p99 / p99_plain:.4f} |")
    if with_hooks and without:
        c, d = statistics.median(without), statistics.median(with_hooks)
        print(f"| sampled steps ({len(with_hooks)}) against others ({len(without)}), both watched | ", end="")
        print(f"{c * 1e3:.2f} ms | {d * 1e3:.2f} ms | {d / c:.4f} |")
    print(
        f"own time: {own['monitor/time'] * 1e3:.3f} ms; host {own['monitor/host'] * 1e3:.3f} ms, device "
        f"{own['monitor/device'] * 1e3:.3f} ms; stretch {own['monitor/stretch']:.2f}, at the end {last_stretch:.2f}; "
        f"{dropped} steps left detail behind",
    )
    print(f"measured every so many steps: {kept}")
    print(f"alarms: {', '.join(alarms) or 'none'}; sweeps at {sweeps}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--identity-steps", type=int, default=300)
    parser.add_argument("--only-identity", action="store_true")
    parser.add_argument("--only-time", action="store_true", help="neither identity nor waiting")
    parser.add_argument("--warm-up", type=int, default=60, help="steps before the first round")
    parser.add_argument("--trace", action="store_true", help="count CUDA calls, of all threads")
    parser.add_argument("--large", action="store_true", help="a model of 1.3 billion parameters, a few rounds")
    options = parser.parse_args()
    if options.only_identity:
        identical(options.identity_steps)
        return
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    if options.identity_steps and not options.only_time:
        identical_apart(options.identity_steps)
    for warm_up in () if options.only_time else (0, 105):  # from the first step on, and once all have had their turn
        no_sync(warm_up)
    for batch in (4, 16):
        label = f"GPT-2 small, batch {batch} × 1024"
        overhead(label, batch, options.rounds, options.steps, warm_up=options.warm_up)
    if options.trace:
        trace()
    if options.large:
        overhead("1.3 billion parameters, batch 4 × 1024", 4, 6, 5, warm_up=15, width=2048, depth=24, heads=16)


if __name__ == "__main__":
    main()
