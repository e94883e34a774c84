"""How long a person waits for the page, in chromium: many runs, a very long run, twenty charts at once, a heat map.

Usage: make page && python benchmarks/page.py [--quick] [--dir FOLDER]

Prints the Markdown of `benchmarks/RESULTS.md`; each figure stands beside its bar. Server and browser share the machine,
and the browser draws without a graphics card.
"""

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measure import Figure, print_figures, print_machine
from playwright.sync_api import Page, sync_playwright

import sonde
from sonde.core.frames import Columns, Frame

NUM_RUNS = 1000
LONG_STEPS, LONG_TAGS = 1_000_000, 20
# Statistics of layers are recorded at every twentieth step: so many rows are a training of 100,000 steps.
HEAT_ROWS, HEAT_LAYERS, HEAT_EVERY = 5_000, 1_000, 20
FRAMES = 60

# Milliseconds from a click until what is asked for is on the screen, and painted.
UNTIL = """async ([act, shown]) => {
  const began = performance.now();
  location.hash = act;
  const isShown = () => [...document.querySelectorAll(shown)].some((one) => one.getClientRects().length);
  while (!isShown()) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""

# Frames a second while a key is held that moves all charts.
FRAMES_A_SECOND = """async (frames) => {
  const press = (key) => dispatchEvent(new KeyboardEvent("keydown", { key }));
  press("+");
  await new Promise((done) => setTimeout(done, 1500));
  const began = performance.now();
  for (let i = 0; i < frames; i++) {
    press(Math.floor(i / 10) % 2 ? "ArrowLeft" : "ArrowRight");
    await new Promise(requestAnimationFrame);
  }
  return (1000 * frames) / (performance.now() - began);
}"""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of `sonde ui` on a folder."""
    command = [sys.executable, "-m", "sonde", "ui", str(folder), "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        process.terminate()
        process.wait()


def record_table(folder: Path, num_runs: int) -> None:
    first = folder / "run-0000"
    with sonde.record(first, config={"lr": 0.1, "width": 64}) as writer:
        for step in range(200):
            writer.log({"loss": 1 / (1 + step), "lr": 0.1, "time/step": 0.01}, step=step)
    for number in range(1, num_runs):
        shutil.copytree(first, folder / f"run-{number:04}")


def record_long(folder: Path, num_steps: int) -> None:
    columns = Columns("step", ("loss", *(f"grad/rms@blocks.{i}.weight" for i in range(LONG_TAGS - 1))))
    rng = np.random.default_rng(7)
    with sonde.record(folder / "run") as writer:
        for step in range(num_steps):
            values = (rng.random(LONG_TAGS, np.float32) + 0.5) / np.sqrt(1 + step / 1000)
            writer.append(Frame(columns, step, 1.7e9 + step / 10, values.astype(np.float32)))
            if step % 5_000 == 0:
                writer.flush()


def record_heat(folder: Path, num_rows: int) -> None:
    columns = Columns("gradients", tuple(f"grad/rms@blocks.{i}.weight" for i in range(HEAT_LAYERS)))
    rng = np.random.default_rng(7)
    with sonde.record(folder / "run") as writer:
        for row in range(num_rows):
            writer.append(Frame(columns, HEAT_EVERY * row, 1.7e9 + row, rng.random(HEAT_LAYERS, np.float32)))
            if row % 500 == 0:
                writer.flush()


def measured(page: Page, folder: Path, num_runs: int, num_steps: int, num_rows: int) -> list[Figure]:
    """All figures, the longest way round: each on a server that was just started."""
    for name, record, size in (
        ("table", record_table, num_runs),
        ("long", record_long, num_steps),
        ("heat", record_heat, num_rows),
    ):
        if not (folder / name).exists():
            record(folder / name, size)
    figures = []
    with served(folder / "table") as address:
        page.goto(address)
        page.locator(".rows .row").first.wait_for()
        took = page.evaluate("performance.now()")
        figures.append(
            Figure(what=f"{num_runs:,} runs: from the address to the table", value=took, unit="ms", at_most=1000)
        )
    with served(folder / "long") as address:
        page.goto(address)
        page.locator(".rows .row").first.wait_for()
        took = page.evaluate(UNTIL, ["#/run/run", 'figure[data-title="Loss"] canvas'])
        what = f"{num_steps:,} steps: from the click to the loss on the screen"
        figures.append(Figure(what=what, value=took, unit="ms", at_most=300))
        charts = "&".join(f"tag=grad/rms@blocks.{i}.weight" for i in range(LONG_TAGS - 1))
        took = page.evaluate(
            UNTIL, [f"#/run/run/explore?tag=loss&{charts}", f".charts > :nth-child({LONG_TAGS}) canvas"]
        )
        figures.append(
            Figure(what=f"{LONG_TAGS} charts of {num_steps:,} points: to the last on the screen", value=took, unit="ms")
        )
        page.wait_for_timeout(1000)
        speed = page.evaluate(FRAMES_A_SECOND, FRAMES)
        figures.append(
            Figure(what=f"{LONG_TAGS} such charts while they are moved", value=speed, unit="frames/s", at_least=30)
        )
    with served(folder / "heat") as address:
        page.goto(address)
        page.locator(".rows .row").first.wait_for()
        took = page.evaluate(UNTIL, ["#/run/run/layers?path=grad/rms", "figure.heat .readout, figure.heat output"])
        what = f"heat map of {HEAT_LAYERS:,} layers × {HEAT_EVERY * num_rows:,} steps: from the click to the map"
        figures.append(
            Figure(what=what, value=took, unit="ms", at_most=300, note=f"measured at every {HEAT_EVERY}th step")
        )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of everything")
    parser.add_argument("--dir", type=Path, help="keep the runs there, and take those that are there")
    args = parser.parse_args()
    share = 0.05 if args.quick else 1.0
    with contextlib.ExitStack() as stack:
        folder = args.dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        print_machine(("sonde", "numpy", "pyarrow", "fastapi", "uvicorn", "playwright"), folder)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        figures = measured(page, folder, *(round(share * size) for size in (NUM_RUNS, LONG_STEPS, HEAT_ROWS)))
        print_figures("The page in chromium", figures)
        browser.close()


if __name__ == "__main__":
    main()
