"""Takes the pictures of the page, `page-*.png`: recorded trainings with a fault each, in chromium.

Usage: make page && python docs/images/make_page.py [FOLDER of runs]

Without FOLDER the trainings are recorded first; that takes about a minute. Needs the packages of the group `dev` and
chromium.
"""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[2]
PLACE = Path(__file__).parent
COLOURS = 200  # of a palette: enough for a page, and a third of the bytes
SETTLE_MS = 1500  # charts, and what they are zoomed to

WIDE, NARROW = 1280, 390
FAULTS = ("dead-units", "vanishing-gradients", "exploding-gradients", "summed-loss", "overfitting", "slow-data")


class Shot(NamedTuple):
    """One picture: of which view, how wide, and dark or light."""

    name: str
    fragment: str
    width: int = WIDE
    theme: str = "light"
    height: int = 800


VIEWS = (
    Shot("runs", "#/?sort=-verdict", height=480),
    Shot("runs-narrow", "#/?sort=-verdict", NARROW, "dark"),
    Shot("layers", "#/run/vanishing-gradients/layers?path=grad/rms&step=300", theme="dark"),
    Shot("layers-explosion", "#/run/exploding-gradients/layers?path=grad/rms&step=140", height=600),
    Shot("layers-narrow", "#/run/vanishing-gradients/layers?path=grad/rms&step=300", NARROW),
    Shot("finding", "#/run/overfitting/finding/GEN001%4084"),
    Shot("compare", "#/compare?run=healthy&run=overfitting&run=dead-units", height=900),
    Shot(
        "explore",
        "#/run/healthy/explore?tag=grad/rms@*.weight&tag=update/ratio@*.weight&tag=loss",
        theme="dark",
        height=600,
    ),
)


def shots() -> list[Shot]:
    """Each fault on both widths, in both themes, and the other views."""
    faults = [
        Shot(f"{fault}-{name}-{theme}", f"#/run/{fault}", width, theme)
        for fault in FAULTS
        for name, width in (("wide", WIDE), ("narrow", NARROW))
        for theme in ("light", "dark")
    ]
    return [*faults, *VIEWS]


def take(browser: Browser, address: str, shot: Shot) -> Path:
    page = browser.new_page(viewport={"width": shot.width, "height": shot.height}, color_scheme=shot.theme)
    page.goto(address + shot.fragment)
    page.locator("canvas, .rows .row").first.wait_for()
    if shot.name == "compare":
        page.locator(".differences").wait_for()
    page.wait_for_timeout(SETTLE_MS)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    place = PLACE / f"page-{shot.name}.png"
    picture.quantize(COLOURS, kmeans=2, dither=Image.Dither.NONE).save(place, optimize=True)
    return place


def main() -> None:
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as own:
        folder = sys.argv[1] if len(sys.argv) == 2 else own
        if folder == own:
            subprocess.run([sys.executable, "-m", "tests.browser.recorded", own], check=True, cwd=ROOT)
        command = [sys.executable, "-m", "sonde", "ui", folder, "--port", "0", "--no-open"]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server,
            sync_playwright() as playwright,
        ):
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1]
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for shot in shots():
                print(take(browser, address, shot))
            browser.close()
            server.terminate()


if __name__ == "__main__":
    main()
