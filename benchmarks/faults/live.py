"""Whether what is found while a training runs is what a replay of the run finds: every scenario of one process.

Usage: python -m benchmarks.faults.live [--seed 0] [--only PATTERN] [--jobs 2]
"""

import argparse
import concurrent.futures
import fnmatch
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.faults.run import catalogue
from benchmarks.faults.scenario import Session

import sonde


def both(name: str, seed: int, *, where: str = "thread") -> tuple[list[Any], list[Any]]:
    """The findings of a training, live and replayed, as JSON."""
    import torch

    torch.set_num_threads(1)
    scenario = catalogue()[name]
    watched: list[Any] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "run")

        def watch(model: Any, optimizer: Any, **settings: Any) -> Any:
            # A training that is resumed is watched twice, and the second time goes on with the first.
            watched.append(
                sonde.watch(model, optimizer, run=folder, console="quiet", settings={"doctor": where}, **settings)
            )
            return watched[-1]

        scenario.train(Session(seed=seed, folder=folder, fixed=scenario.cause is None, monitor=watch))
        live = [finding.to_json() for finding in watched[-1].findings()]
        return live, [finding.to_json() for finding in sonde.diagnose(folder)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = [name for name, one in catalogue().items() if one.ranks == 1 and fnmatch.fnmatch(name, options.only)]
    apart, failed = [], []
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
        for name, result in zip(names, [pool.submit(both, name, options.seed) for name in names], strict=True):
            try:
                live, replayed = result.result()
            except Exception as error:  # a training that cannot be run so says nothing about findings
                failed.append(f"{name}: {error!r}")
                continue
            if live != replayed:
                apart.append(name)
    print(f"{len(names) - len(apart) - len(failed)} of {len(names)} alike; apart: {apart}; not run: {failed}")


if __name__ == "__main__":
    main()
