"""Scripts that know nothing of Sonde, run as a shell would, with and without it."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import sonde

HEADER = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
"""


@dataclass(frozen=True)
class Outcome:
    """How a script ended."""

    status: int
    out: str
    err: str

    def printed(self, word: str) -> list[float]:
        """The numbers on the lines of stdout that begin with a word."""
        return [float(line.split()[1]) for line in self.out.splitlines() if line.startswith(f"{word} ")]


@dataclass(frozen=True)
class Bench:
    """A folder with a script in it."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """Of a process in which Sonde can be imported, wherever it stands."""
        return {**os.environ, "PYTHONPATH": str(Path(sonde.__file__).parents[1]), "OMP_NUM_THREADS": "1"}

    def write(self, body: str, name: str = "train.py", *, header: str = HEADER) -> Path:
        """Put a script there."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(header + textwrap.dedent(body))
        return path

    def call(self, *words: object, **env: str) -> Outcome:
        """Run `python` with these words."""
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def bare(self, *words: object) -> Outcome:
        """Run the script without us."""
        return self.call(*(words or ("train.py",)))

    def watched(self, *words: object, **env: str) -> Outcome:
        """Run it by `sonde run`, into `run`."""
        return self.call("-m", "sonde", "run", "--run", "run", *(words or ("train.py",)), **env)

    def both(self, *words: object) -> tuple[Outcome, sonde.Run]:
        """Run it both ways: what is printed and the exit status must be the same."""
        bare, watched = self.bare(*words), self.watched(*words)
        assert watched.out == bare.out, watched.err
        assert watched.status == bare.status, watched.err
        assert "has failed" not in watched.err, watched.err
        return watched, self.run

    @property
    def run(self) -> sonde.Run:
        """What was recorded."""
        return sonde.load(self.folder / "run")

    def not_measured(self) -> dict[str, str]:
        """What the run says about itself."""
        return {event.data["tag"]: event.data["reason"] for event in self.run.events("not-measured")}
