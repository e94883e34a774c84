"""Run the scenarios, each in a process of its own with one thread.

The Sonde run of scenario `name` lies in FOLDER/<name>/<seed>-faulty, that of its repaired twin in <seed>-twin; a
training without a fault has a twin only. FOLDER/results.jsonl gets a line for each run as it ends: name, seed, twin,
quality (lower is better), seconds (of the training, without imports), steps, nonfinite_step (the first with a NaN or
infinite loss), peak_mb, complaints (what was printed to stderr, Sonde's own faults for one)
and, where the process failed, error.

Usage: python -m benchmarks.faults.run [--seeds 0,2] [--only PATTERN] [--jobs 2] [--out FOLDER]
"""

import argparse
import concurrent.futures
import fnmatch
import importlib
import importlib.util
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.faults.scenario import Scenario, Session

CATALOGUES = ("benchmarks.faults.catalogue_k", "benchmarks.faults.catalogue_l")
TIMEOUT_S = 180


def catalogue() -> dict[str, Scenario]:
    """All scenarios by name."""
    found: dict[str, Scenario] = {}
    for module in CATALOGUES:
        if importlib.util.find_spec(module) is None:
            continue
        for scenario in importlib.import_module(module).SCENARIOS:
            assert scenario.name not in found, f"two scenarios are called {scenario.name}"
            found[scenario.name] = scenario
    return found


def train_one(scenarios: dict[str, Scenario], asked: dict[str, Any]) -> None:
    """Train in this process and print what is to be said about it."""
    session = Session(seed=asked["seed"], folder=Path(asked["folder"]), fixed=asked["twin"])
    result = train_here(scenarios[asked["name"]], session, rank=asked["rank"], store=Path(asked["store"]))
    if asked["rank"] == 0:
        print(json.dumps({**result, **describe(session.folder)}))


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
    folder = out / scenario.name / f"{seed}-{'twin' if twin else 'faulty'}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"name": scenario.name, "seed": seed, "twin": twin}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        processes = []
        for rank in range(scenario.ranks):
            asked, said, complained = (Path(scratch, f"{rank}.{end}") for end in ("in", "out", "err"))
            asked.write_text(json.dumps({**result, "folder": str(folder), "rank": rank, "store": f"{scratch}/store"}))
            with asked.open() as stdin, said.open("w") as stdout, complained.open("w") as stderr:
                # Not on the command line, which Sonde records: the truth must not reach the run.
                command = [sys.executable, "-m", "benchmarks.faults.run", "--train"]
                processes.append(subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment))
        try:
            for process in processes:
                process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            result["error"] = f"took more than {TIMEOUT_S} s"
        finally:
            for process in processes:
                process.kill()
                process.wait()
        failed = [rank for rank, process in enumerate(processes) if process.returncode]
        if failed:
            result.setdefault("error", Path(scratch, f"{failed[0]}.err").read_text()[-2_000:])
        else:
            result.update(json.loads(Path(scratch, "0.out").read_text().splitlines()[-1]))
            complaints = "".join(Path(scratch, f"{rank}.err").read_text() for rank in range(scenario.ranks))
            if complaints:
                result["complaints"] = complaints[-500:]
    return result


def run_all(scenarios: list[Scenario], seeds: list[int], *, jobs: int, out: Path) -> None:
    """Run them all and write the results as they come."""
    lock = threading.Lock()
    todo = [
        (scenario, seed, twin)
        for scenario in scenarios
        for seed in seeds
        for twin in ((True,) if scenario.cause is None else (False, True))
    ]
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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", default="0,2", help="even ones are for tuning, odd ones for the test")
    parser.add_argument("--only", default="*", help="pattern of names, as of a shell; several with commas")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/faults"))
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    scenarios = catalogue()
    if args.train:
        train_one(scenarios, json.load(sys.stdin))
        return
    seeds = [int(seed) for seed in args.seeds.split(",")]
    patterns = args.only.split(",")
    chosen = [s for name, s in scenarios.items() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    run_all(chosen, seeds, jobs=args.jobs, out=args.out)


if __name__ == "__main__":
    main()
