"""What judging costs: rules and signals over 10,000 tags a frame, and the diagnosis of a long stored run.

Usage: python benchmarks/diagnosis.py [--steps 100000]
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import sonde
from sonde.core.frames import Columns, Detail, Frame
from sonde.diagnosis.doctor import Doctor

STATISTICS = ("norm", "rms", "mean", "std", "min", "max", "absmax", "zero_share", "nonfinite", "kurtosis")
ESSENTIAL = Columns("step", ("loss", "lr", "grad/norm", "weight/norm", "update/ratio", "time/step"))


def layered(family: str, table: str, num: int) -> Columns:
    names = [f"blocks.{place // 4}.{'abcd'[place % 4]}.weight" for place in range(num // len(STATISTICS))]
    return Columns(table, [f"{family}/{what}@{name}" for what in STATISTICS for name in names], Detail.LAYER)


def rows(steps: int, tables: list[tuple[Columns, int]], seed: int = 0) -> "list[Frame]":
    random = np.random.default_rng(seed)
    out = []
    for step in range(1, steps + 1):
        loss = 2 / (1 + step / 1000) + 0.05 * random.normal()
        values = np.array([loss, 1e-3, 1 + 0.1 * random.normal(), 10, 1e-3, 0.1], np.float32)
        out.append(Frame(ESSENTIAL, step, float(step), values))
        out += [
            Frame(columns, step, float(step), random.random(len(columns.tags)).astype(np.float32))
            for columns, every in tables
            if step % every == 0
        ]
    return out


def a_frame() -> None:
    tables = [(layered("grad", "gradients", 5000), 1), (layered("weight", "weights", 5000), 1)]
    frames = rows(200, tables)
    doctor = Doctor()
    for frame in frames[:150]:
        doctor.frame(frame)
    began = time.process_time()
    for frame in frames[150:]:
        doctor.frame(frame)
    spent = (time.process_time() - began) / 150
    print(f"| rules and signals, 10,000 tags at every step | {1e3 * spent:.2f} ms a step | ≤ 2 ms |", flush=True)


def a_run(steps: int) -> None:
    tables = [(layered("grad", "gradients", 500), 10), (layered("weight", "weights", 500), 10)]
    with tempfile.TemporaryDirectory() as folder:
        with sonde.record(Path(folder, "run")) as writer:
            for start in range(0, steps, 1000):
                for frame in rows(1000, tables, seed=start):
                    writer.append(Frame(frame.columns, frame.step + start, frame.time, frame.values))
                writer.flush()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, began_cpu = time.perf_counter(), time.process_time()
        diagnosis = sonde.diagnose(Path(folder, "run"))
        spent, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
        took = f"{spent:.1f} s ({cpu:.1f} s of CPU), {more:.0f} MB more"
        print(f"| a stored run of {steps:,} steps × 1,000 tags | {took} | ≤ 60 s |")
        assert diagnosis.steps == steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    print("| what | measured | bar |\n|---|---|---|")
    a_frame()
    a_run(options.steps)


if __name__ == "__main__":
    main()
