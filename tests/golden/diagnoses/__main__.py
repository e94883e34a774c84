"""Make the golden diagnoses again.

`python -m tests.golden.diagnoses` writes what `sonde diagnose` says of the rows that are kept, a text each: read the
difference before it is committed. With `--rows` the trainings are recorded anew before, on one core, which takes some
minutes; their numbers differ from machine to machine.
"""

import argparse
import contextlib
import importlib
import io
import tempfile
from pathlib import Path

from tests.golden.diagnoses.keeping import packed, unpack

import sonde
from sonde.cli.main import main as program

FOLDER = Path(__file__).parent
ROWS = FOLDER / "recorded"
TRAININGS = (
    "autoencoder-fp16-unscaled",
    "batchnorm-eval-mode-in-training",
    "bilinear-fp16-overflow",
    "cnn-batch-too-large",
    "cnn-schedule-decays-too-fast",
    "convnet-garbage-batch",
    "convnet-head-not-in-optimizer",
    "convnet-raw-pixels",
    "dropout-train-mode-in-evaluation",
    "healthy-accumulation",
    "language-bf16-weights",
    "linear-insufficient-capacity",
    "mlp-accumulation-not-scaled",
    "mlp-adam-epsilon-underflow",
    "mlp-batch-too-small",
    "mlp-batchnorm-small-batch",
    "mlp-bursty-data-stall",
    "mlp-clip-before-unscale",
    "mlp-clip-too-aggressive",
    "mlp-dead-from-bias",
    "mlp-double-softmax",
    "mlp-drift-jump",
    "mlp-init-too-large",
    "mlp-kept-losses",
    "mlp-label-noise",
    "mlp-lr-spike",
    "mlp-lr-too-high",
    "mlp-lr-too-low",
    "mlp-missing-zero-grad",
    "mlp-nan-input",
    "mlp-overfitting",
    "mlp-resumed-without-optimizer",
    "mlp-shuffled-labels",
    "mlp-summed-loss",
    "mlp-unused-branch",
    "mlp-vanishing-sigmoid",
    "mlp-weight-decay-too-strong",
    "rnn-missing-clipping",
    "transformer-attention-logit-growth",
    "transformer-warmup-too-short",
)
"""Of `benchmarks/faults`, one a fault, each with its first seed."""


def diagnosed(run: Path) -> str:
    """What `sonde diagnose` prints of a run."""
    with contextlib.chdir(run.parent), contextlib.redirect_stdout(io.StringIO()) as said:
        program(["diagnose", run.name])
    return said.getvalue()


def record(name: str) -> None:
    """Train, and keep the rows."""
    # By name, since the type checker would follow an import into the trainings, which are written as users write.
    faults = importlib.import_module("benchmarks.faults.run")
    scenario = faults.catalogue()[name]
    with tempfile.TemporaryDirectory() as folder:
        faults.start(scenario, 0, twin=scenario.cause is None, out=Path(folder))
        (run,) = (Path(folder) / name).iterdir()
        (ROWS / f"{name}.xz").write_bytes(packed(sonde.load(run)))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.diagnoses", description=__doc__)
    parser.add_argument("--rows", action="store_true", help="record the trainings anew before")
    parser.add_argument("names", nargs="*", default=TRAININGS, help="of trainings; all by default")
    options = parser.parse_args()
    ROWS.mkdir(exist_ok=True)
    for name in options.names:
        if options.rows:
            record(name)
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            unpack(ROWS / f"{name}.xz", run)
            (FOLDER / f"{name}.txt").write_text(diagnosed(run), encoding="utf-8")


if __name__ == "__main__":
    main()
