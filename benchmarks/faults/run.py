"""Run the scenarios, each in a process of its own with one thread.

The Sonde run of scenario `name` lies in FOLDER/<name>/<seed>-faulty, that of its repaired twin in <seed>-twin; a
training without a fault has a twin only. FOLDER/results.jsonl gets a line for each run as it ends: name, seed, twin,
quality (lower is better), seconds (of the training, without imports), steps, nonfinite_step (the first with a NaN or
infinite loss) and then nonfinite_parameters (those that became so first, by a second training without a monitor),
peak_mb, complaints (what was printed to stderr, Sonde's own faults for one) and, where the process failed, error.

Runs are judged by replay (`score.py`), so none is diagnosed while it goes on; SONDE_DOCTOR=process has it done.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import math
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.faults.scenario import Scenario, Session
from benchmarks.faults.seat import Oracle, Seat

TIMEOUT_S = 180


def catalogue() -> dict[str, Scenario]:
    """All scenarios by name."""
    from benchmarks.faults.catalogue import SCENARIOS

    found = {scenario.name: scenario for scenario in SCENARIOS}
    assert len(found) == len(SCENARIOS), "two scenarios have the same name"
    return found


def train_one(scenarios: dict[str, Scenario], asked: dict[str, Any]) -> None:
    """Train in this process and print what is to be said about it."""
    scenario = scenarios[asked["name"]]
    session = Session(seed=asked["seed"], folder=Path(asked["folder"]), fixed=asked["twin"])
    result = train_here(scenario, session, rank=asked["rank"], store=Path(asked["store"]))
    if asked["rank"] == 0:
        result |= describe(session.folder)
        if result["nonfinite_step"] is not None and scenario.ranks == 1:
            result["nonfinite_parameters"] = nonfinite_parameters(scenario, session)
        print(json.dumps(result))


def nonfinite_parameters(scenario: Scenario, session: Session) -> list[str]:
    """The parameters that became non-finite first, none where none did; trains once more."""
    oracles: list[Oracle] = []

    def watch(model: Any, optimizer: Any, **settings: Any) -> Seat:
        oracles.append(Oracle(model))
        return Seat(oracles[-1].look)

    scenario.train(replace(session, monitor=watch))
    return next((oracle.nonfinite_parameters for oracle in oracles if oracle.nonfinite_parameters), [])


def train_here(scenario: Scenario, session: Session, *, rank: int, store: Path) -> dict[str, Any]:
    """Train in this process."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if scenario.ranks > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=scenario.ranks,
            timeout=timedelta(seconds=60),
        )
    began = time.perf_counter()
    quality = float(scenario.train(session))
    seconds = time.perf_counter() - began
    if scenario.ranks > 1:
        dist.barrier()  # one that leaves early takes the other's connection with it
        dist.destroy_process_group()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"quality": quality, "seconds": round(seconds, 2), "peak_mb": round(peak_mb)}


def describe(folder: Path) -> dict[str, Any]:
    """What the run itself says of its length and of non-finite losses."""
    import numpy as np

    import sonde
    from sonde.core.errors import TagNotFound

    try:
        losses = sonde.load(folder).series("loss")
    except TagNotFound:
        return {"steps": 0, "nonfinite_step": None}
    bad = np.flatnonzero(~np.isfinite(losses.value))
    return {"steps": len(losses.step), "nonfinite_step": int(losses.step[bad[0]]) if len(bad) else None}


def start(scenario: Scenario, seed: int, *, twin: bool, out: Path) -> dict[str, Any]:
    """Train in fresh processes, one a rank, and wait for them."""
    kept = out / scenario.name / f"{seed}-{'twin' if twin else 'faulty'}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    # A run knows the name of its folder, and the truth must not reach it: recorded elsewhere and moved.
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=out)) / "run"
    result: dict[str, Any] = {"name": scenario.name, "seed": seed, "twin": twin}
    with tempfile.TemporaryDirectory() as scratch:
        processes = []
        for rank in range(scenario.ranks):
            asked = {**result, "folder": str(folder), "rank": rank, "store": f"{scratch}/store"}
            process = _PROCESSES.Process(target=_train, args=(asked, f"{scratch}/{rank}.out", f"{scratch}/{rank}.err"))
            process.start()
            processes.append(process)
        deadline = time.monotonic() + TIMEOUT_S
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        if any(process.exitcode is None for process in processes):
            result["error"] = f"took more than {TIMEOUT_S} s"
        for process in processes:
            process.kill()
            process.join()
        failed = [rank for rank, process in enumerate(processes) if process.exitcode]
        if failed:
            errors = Path(scratch, f"{failed[0]}.err")
            said = errors.read_text()[-2_000:] if errors.exists() else f"exit status {processes[failed[0]].exitcode}"
            result.setdefault("error", said)
        else:
            result.update(json.loads(Path(scratch, "0.out").read_text().splitlines()[-1]))
            complaints = "".join(Path(scratch, f"{rank}.err").read_text() for rank in range(scenario.ranks))
            if complaints:
                result["complaints"] = complaints[-500:]
    shutil.rmtree(kept, ignore_errors=True)
    if folder.exists():
        folder.rename(kept)
    shutil.rmtree(folder.parent)
    return result


# Forked from a server that has torch imported already: importing it takes as long as a training.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["benchmarks.faults.catalogue", "sonde.monitor.watch"])


def _train(asked: dict[str, Any], said: str, complained: str) -> None:
    """Train in this process, which was made for it, with its output in files."""
    for path, stream in ((said, 1), (complained, 2)):
        opened = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.dup2(opened, stream)
        os.close(opened)
    sys.argv = ["train.py"]  # Sonde records it
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    os.environ.setdefault("SONDE_DOCTOR", "off")
    train_one(catalogue(), asked)
    sys.stdout.flush()


def run_all(todo: Sequence[tuple[Scenario, int, bool]], *, jobs: int, out: Path) -> None:
    """Run these (scenario, seed, whether the twin) and write the results as they come."""
    lock = threading.Lock()
    out.mkdir(parents=True, exist_ok=True)

    def do(scenario: Scenario, seed: int, twin: bool) -> None:
        result = start(scenario, seed, twin=twin, out=out)
        with lock, (out / "results.jsonl").open("a") as results:
            plain = {key: str(v) if isinstance(v, float) and not math.isfinite(v) else v for key, v in result.items()}
            results.write(json.dumps(plain, allow_nan=False) + "\n")
            print(json.dumps(plain), flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(do, *one) for one in todo]:
            done.result()


def recorded(out: Path) -> set[tuple[str, int, bool]]:
    """Name, seed and whether the twin of all runs that are there already."""
    results = out / "results.jsonl"
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    return {(row["name"], row["seed"], row["twin"]) for row in rows if "error" not in row}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0,2", help="even ones are for tuning, odd ones for the test; default 0,2")
    parser.add_argument("--healthy-seeds", help="others for the trainings without a fault")
    parser.add_argument("--only", default="*", help="pattern of names, as of a shell; several with commas")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time; default 2")
    parser.add_argument("--out", type=Path, default=Path("runs/faults"), metavar="FOLDER", help="default runs/faults")
    parser.add_argument("--missing", action="store_true", help="leave out the runs that are in FOLDER already")
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    healthy_seeds = [int(seed) for seed in (args.healthy_seeds or args.seeds).split(",")]
    there = recorded(args.out) if args.missing else set()
    todo = [
        (scenario, seed, twin)
        for name, scenario in catalogue().items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in args.only.split(","))
        for seed in (healthy_seeds if scenario.cause is None else seeds)
        for twin in ((True,) if scenario.cause is None else (False, True))
        if (name, seed, twin) not in there
    ]
    run_all(todo, jobs=args.jobs, out=args.out)


if __name__ == "__main__":
    main()
