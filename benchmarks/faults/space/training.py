"""Train pieces of plans, each in a process of its own with one thread, until the time is over."""

import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.faults.space import keeping
from benchmarks.faults.space.plan import Piece

TIMEOUT_S = 60

# Forked from a server that has torch imported already, and what its optimisers import when the first one is made:
# importing them takes longer than a training.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["torch._dynamo", "benchmarks.faults.space.loop", "sonde.monitor.watch"])


Train = Callable[[dict[str, Any], Path | None], dict[str, Any]]
"""Trains a recipe, recorded to a folder or not; tells `quality`, `reported`, `step_ms` and `losses`."""


def of_the_space(recipe: dict[str, Any], run: Path | None) -> dict[str, Any]:
    """Train a recipe that was drawn from the space."""
    from benchmarks.faults.scenario import Session
    from benchmarks.faults.seat import unwatched
    from benchmarks.faults.space.loop import train
    from benchmarks.faults.space.recipe import from_json

    session = Session(seed=0, folder=run or Path("unused"), monitor=None if run else unwatched)
    outcome = train(from_json(recipe), session)
    return {name: getattr(outcome, name) for name in ("quality", "reported", "step_ms", "losses")}


def train_all(plans: Iterable[Piece], folder: Path, *, minutes: float, train: Train = of_the_space) -> int:
    """Train what the manifest does not hold yet; returns how many were trained.

    Args:
        plans: What is wanted, in its order.
        folder: Where it is kept.
        minutes: No training begins after that.
        train: What trains a recipe, in a process of its own.
    """
    ends, done, num = time.monotonic() + 60 * minutes, keeping.read(folder), 0
    for piece in plans:
        if time.monotonic() > ends:
            break
        if piece.training.key not in done:
            keeping.append(folder, train_one(piece, folder, train=train))
            num += 1
    return num


def train_one(piece: Piece, folder: Path, *, train: Train = of_the_space) -> dict[str, Any]:
    """Train in a fresh process, keep its rows, and return the line for the manifest."""
    key = piece.training.key
    row: dict[str, Any] = {
        "key": key, "family": piece.training.family, "seed": piece.training.seed,
        "replicate": piece.training.replicate, "role": piece.role, "watched": piece.watched, "fault": piece.fault,
        "strength": piece.strength, "twin": piece.twin, "group": piece.group, "recipe": piece.training.to_json(),
    }  # fmt: skip
    scratch = Path(tempfile.mkdtemp())
    try:
        process = _PROCESSES.Process(target=_train, args=(train, row["recipe"], piece.watched, str(scratch)))
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            return {**row, "error": f"took more than {TIMEOUT_S} s"}
        if process.exitcode:
            return {**row, "error": (scratch / "stderr").read_text()[-1500:]}
        row |= json.loads((scratch / "outcome.json").read_text())
        if piece.watched:
            keeping.pack(scratch / "run", folder, key)
        return row
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _train(train: Train, recipe: dict[str, Any], watched: bool, scratch: str) -> None:
    """In the process that was made for it; nothing of role or fault reaches it but the recipe."""
    opened = os.open(f"{scratch}/stderr", os.O_CREAT | os.O_WRONLY)
    os.dup2(opened, 2)
    sys.argv = ["train.py"]  # Sonde records it
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", SONDE_DOCTOR="off")
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    outcome = train(recipe, Path(scratch, "run") if watched else None)
    told = {
        "quality": outcome["quality"], "reported": outcome["reported"], "step_ms": round(outcome["step_ms"], 3),
        "seconds": round(time.perf_counter() - began, 3),
        "memory_mb": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3, 1),
        "losses": [float(f"{loss:.4g}") for loss in outcome["losses"]],
    }  # fmt: skip
    Path(scratch, "outcome.json").write_text(json.dumps(told))
