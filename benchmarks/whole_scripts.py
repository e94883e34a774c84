"""Whole short scripts, from start to exit: alone and under `sonde run`, in turn.

python benchmarks/whole_scripts.py --turns 5 vae cnn

On a busy machine the wall time says little. What is shown is the wall time of the script's main thread without the time
for which it was ready to run and other jobs had the processors (`/proc/self/task/<thread>/schedstat`, Linux).
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "examples" / "scripts"
SHORT = {
    "char": ("char_transformer.py", "--steps", "60"),
    "cnn": ("cnn_steplr.py", "--epochs", "1"),
    "dcgan": ("dcgan.py", "--epochs", "1", "--samples", "640"),
    "hf": ("hf_trainer.py", "--epochs", "0.5", "--sentences", "512"),
    "lightning": ("lightning_script.py", "--epochs", "1", "--samples", "800"),
    "vae": ("vae.py", "--epochs", "1", "--samples", "3200"),
    "word": ("word_lstm.py", "--epochs", "1"),
}

_NOTE = """
import atexit, os, sys, time

note, process, began = os.environ.pop("NOTE", ""), os.getpid(), time.perf_counter()

def end():
    if os.getpid() == process:
        delayed = int(open(f"/proc/self/task/{process}/schedstat").read().split()[1]) / 1e9
        print(time.perf_counter() - began - delayed, file=open(note, "w"))

if note:
    atexit.register(end)
"""


def seconds(command: list[str], folder: Path) -> float:
    """How long a script takes, in a folder with the module that notes it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    paths = filter(None, [str(folder), environment.get("PYTHONPATH")])
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), "NOTE": str(folder / "note")}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return float((folder / "note").read_text())


def main() -> None:
    """Print a line for each script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SHORT), help="of scripts: " + ", ".join(SHORT))
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    for name in args.names:
        script, *words = SHORT[name]
        plain = [sys.executable, str(SCRIPTS / script), *words]
        watched = [sys.executable, "-m", "sonde", "run", *plain[1:]]
        pairs = []
        for turn in range(args.turns):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "sitecustomize.py").write_text(_NOTE, encoding="utf-8")
                took = [seconds(command, Path(folder)) for command in (plain, watched)[:: 1 if turn % 2 else -1]]
            pairs.append(took[:: 1 if turn % 2 else -1])
        alone, longer = (statistics.median(each) for each in ([a for a, _ in pairs], [b - a for a, b in pairs]))
        print(f"{name}: {alone:.2f} s alone, {longer:.2f} s longer under `sonde run`", flush=True)


if __name__ == "__main__":
    main()
