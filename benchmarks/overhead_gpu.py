"""What watching costs on a GPU: GPT-2 small, fp32 weights, bf16 autocast, fused AdamW, against the same unwatched.

Rounds of unwatched and watched steps alternate in one process. Batch 16 × 1024 is bound by the device, batch 4 by
launches.

Usage: python benchmarks/overhead_gpu.py [--rounds 40] [--steps 8]
"""

import argparse
import os
import statistics
import tempfile
import time

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


def trainer(batch: int, seed: int = 0):
    torch.manual_seed(seed)
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(50257, (batch, 1025), device="cuda")

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, optimizer, step


def identical(steps: int = 100) -> str:
    """Losses, weights and random state of a watched training against two unwatched ones (the second is the control)."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    ends = []
    for watched in (False, False, True):
        model, optimizer, step = trainer(2)
        losses = []
        with tempfile.TemporaryDirectory() as folder:
            watch = sonde.watch(model, optimizer, run=f"{folder}/run", strict=True) if watched else None
            for _ in range(steps):
                loss = step()
                losses.append(loss.detach())
                if watch:
                    watch.step(loss)
            if watch:
                watch.close()
        ends.append((torch.stack(losses), [p.detach().clone() for p in model.parameters()], torch.cuda.get_rng_state()))
    torch.use_deterministic_algorithms(False)

    def equal(a, b) -> bool:
        return torch.equal(a[0], b[0]) and all(map(torch.equal, a[1], b[1])) and torch.equal(a[2], b[2])

    return f"{steps} steps: control {equal(ends[0], ends[1])}, watched {equal(ends[0], ends[2])}"


def no_sync(steps: int = 200) -> str:
    model, optimizer, step = trainer(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        sonde.watch(model, optimizer, run=f"{folder}/run", strict=True) as watch,
    ):
        for _ in range(30):
            watch.step(step())
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(steps):
                watch.step(step())
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
    return f"{steps} watched steps without a synchronisation"


def run_of(step, watch, steps: int) -> float:
    """Seconds a step in a stretch without synchronisation inside."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        loss = step()
        if watch:
            watch.step(loss)
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / steps


def overhead(batch: int, rounds: int, steps: int) -> None:
    """Two equal trainings, one of them watched, take turns."""
    _, _, plain_step = trainer(batch)
    model, optimizer, step = trainer(batch)
    plain, watched = [], []
    with tempfile.TemporaryDirectory() as folder:
        with sonde.watch(model, optimizer, run=f"{folder}/run", strict=True) as watch:
            for _ in range(20):
                plain_step()
                watch.step(step())
            for round_ in range(rounds):
                for on in (False, True) if round_ % 2 else (True, False):
                    if on:
                        watched.append(run_of(step, watch, steps))
                    else:
                        plain.append(run_of(plain_step, None, steps))
        own = sonde.load(f"{folder}/run").series("monitor/time").value.tolist()
    ratios = sorted(b / a for a, b in zip(plain, watched, strict=True))
    low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    a, b = statistics.median(plain), statistics.median(watched)
    print(
        f"| batch {batch} × 1024 | {a * 1e3:.2f} ms | {b * 1e3:.2f} ms | {b / a:.4f} ({low:.4f} to {high:.4f}) "
        f"| {statistics.median(own) * 1e3:.2f} ms |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    print(torch.__version__, torch.cuda.get_device_name())
    print("bit-identical:", identical())
    print(no_sync())
    print("| | unwatched | watched | ratio of medians (middle 80% of rounds) | own time, host |\n|---|---|---|---|---|")
    for batch in (16, 4):
        overhead(batch, options.rounds, options.steps)


if __name__ == "__main__":
    main()
