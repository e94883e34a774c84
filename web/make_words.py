"""Writes what the page shares with Sonde's reports: the words of series and causes, and the palette.

They are `src/words/words.json` and `src/styles/colours.css`.

Usage: python web/make_words.py
"""

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path

from sonde.core.causes import Cause
from sonde.core.palette import DARK, LIGHT
from sonde.reports.meanings import MEANINGS

WORDS = Path(__file__).parent / "src" / "words" / "words.json"
COLOURS = Path(__file__).parent / "src" / "styles" / "colours.css"
_OWN = {"main": "series-0", "second": "series-1", "ok": "healthy"}
"""Further names of colours, for what they are on the page."""


def words() -> str:
    """The file, as it should be."""
    meanings = {path: known._asdict() for path, known in sorted(MEANINGS.items())}
    causes = {cause.value: cause.meaning for cause in Cause}
    return json.dumps({"meanings": meanings, "causes": causes}, indent=2, ensure_ascii=False) + "\n"


def colours() -> str:
    """The style sheet, as it should be."""
    light, dark = _theme(":root", "light", LIGHT), _theme(':root[data-theme="dark"]', "dark", DARK)
    return f"/* Written by make_words.py, out of sonde.core.palette; its contrasts are tested there. */\n{light}{dark}"


def _theme(selector: str, scheme: str, theme: Mapping[str, str]) -> str:
    named = {**theme, **{name: theme[same] for name, same in _OWN.items()}}
    kept = {
        name: colour for name, colour in named.items() if not name.startswith("heat-")
    }  # maps have a ramp of theirs
    lines = textwrap.wrap(
        " ".join(f"--{name}:\0{colour};" for name, colour in kept.items()), 150, break_on_hyphens=False
    )
    inside = "\n".join(f"  {line}" for line in lines).replace("\0", " ")
    return f"{selector} {{\n  color-scheme: {scheme};\n{inside}\n}}\n"


if __name__ == "__main__":
    WORDS.write_text(words(), encoding="utf-8")
    COLOURS.write_text(colours(), encoding="utf-8")
