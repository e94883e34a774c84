"""Draws the README's picture, `show.svg`, from a recorded run: what `sonde show RUN` prints on a terminal.

Usage: sonde demo --run runs/demo && python docs/images/make.py runs/demo
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import sonde
from sonde.cli.page import page

COLUMNS = 84
# Of Rich's SVG, in its units.
CELL_WIDTH, LINE_HEIGHT, BASELINE = 12.2, 24.4, 20.0
BLOCKS = " ▁▂▃▄▅▆▇█"
TEXT_OF_BLOCKS = re.compile(
    r'<text class="(?P<style>[^"]*)" x="(?P<x>[^"]*)" y="(?P<y>[^"]*)"[^>]*>'
    rf"(?P<blocks>(?:&#160;|[{BLOCKS[1:]}])+)</text>"
)


def draw_blocks(text: re.Match[str]) -> str:
    """A text of block characters as rectangles: between lines of text every font leaves gaps, another one each."""
    x, bottom = float(text["x"]), float(text["y"]) - BASELINE + LINE_HEIGHT + 2  # a little low, or seams show
    shapes = []
    for run in re.finditer(r"([^ ])\1*", text["blocks"].replace("&#160;", " ")):
        height = LINE_HEIGHT * BLOCKS.index(run[1]) / 8 + 0.5
        left, width = x + CELL_WIDTH * run.start(), CELL_WIDTH * len(run[0])
        shapes.append(f"M{left:.1f} {bottom:.2f}v{-height:.2f}h{width:.1f}v{height:.2f}z")
    return f'<path class="{text["style"]}" d="{"".join(shapes)}"/>'


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False, markup=False
    )
    run = sonde.load(sys.argv[1])
    run.info["environment"].update(platform="Linux-6.8.0-x86_64", host="laptop", commit=None)  # whoever draws it
    console.print(page(run, width=COLUMNS))
    svg = console.export_svg(title=f"sonde show {sys.argv[1]}", theme=MONOKAI)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # a picture that loads nothing from elsewhere
    svg = TEXT_OF_BLOCKS.sub(draw_blocks, svg)
    picture = Path(__file__).with_name("show.svg")
    picture.write_text(svg, encoding="utf-8")
    print(picture)


if __name__ == "__main__":
    main()
