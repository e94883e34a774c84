"""Writes `src/words/words.json`: what series and causes are called, in the words of Sonde's reports.

Usage: python web/make_words.py
"""

import json
from pathlib import Path

from sonde.core.causes import Cause
from sonde.reports.meanings import MEANINGS

PLACE = Path(__file__).parent / "src" / "words" / "words.json"


def words() -> str:
    """The file, as it should be."""
    meanings = {path: known._asdict() for path, known in sorted(MEANINGS.items())}
    causes = {cause.value: cause.meaning for cause in Cause}
    return json.dumps({"meanings": meanings, "causes": causes}, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PLACE.write_text(words(), encoding="utf-8")
