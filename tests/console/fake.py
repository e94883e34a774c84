"""A training that needs no torch: rows for a board, at the pace of somebody who waits for an event."""

import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from sonde.console.board import Board
from sonde.console.display import Display
from sonde.core.findings import Finding
from sonde.core.frames import Columns, Detail, Frame

STEP = Columns("step", ("loss", "loss/ema", "lr", "grad/norm", "throughput/samples_per_s"))
LAYERS = Columns(
    "gradients", [f"grad/rms@blocks.{i}.{kind}" for i in range(12) for kind in ("weight", "bias")], Detail.LAYER
)
MOST_STEPS = 5000


def take(board: Board, step: int) -> None:
    board.take(Frame(STEP, step, time.time(), np.array([3 / step, 3.1 / step, 0.1, 1.0, 320.0], np.float32)))
    board.take(Frame(LAYERS, step, time.time(), np.geomspace(1e-3, 1e-2, 24).astype(np.float32)))


def display(*, mode: str = "live", interval_s: float = 0.2, findings: Sequence[Finding] = ()) -> tuple[Board, Display]:
    board = Board("runs/fake", began=time.time(), total_steps=MOST_STEPS)
    return board, Display(board, lambda: findings, mode=mode, interval_s=interval_s, start_s=0.0)  # type: ignore[arg-type]


def train(board: Board, each: Callable[[int], None] = lambda step: None, *, until: str = "seen", first: int = 1) -> int:
    """Steps until a file of this name is there; the last one."""
    for step in range(first, MOST_STEPS):
        take(board, step)
        each(step)
        time.sleep(0.01)  # a step takes time
        if os.path.exists(until):
            return step
    raise TimeoutError(until)
