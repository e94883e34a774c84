"""Writes the guides beside it: the texts that `sonde explain PROBLEM` prints.

Usage: python docs/how-to/problems/make_guides.py
"""

from pathlib import Path

from sonde.reports.problem_guides import GUIDES, text

FOLDER = Path(__file__).parent


def page(name: str) -> str:
    """A whole page."""
    made = f"`sonde explain {name}` prints this page; `docs/how-to/problems/make_guides.py` made it."
    return f"{text(name)}\n---\n\n{made} All looks in order: [debug a training](../debug-a-training.md).\n"


if __name__ == "__main__":
    for name in GUIDES:
        (FOLDER / f"{name}.md").write_text(page(name), encoding="utf-8")
