"""The pages about trainers: their code runs where the library is there."""

import re
import sys
from pathlib import Path

import pytest

from sonde.core.optional import available

from .trainers import launched

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.parametrize(
    ("page", "library"),
    [("lightning", "lightning"), ("huggingface", "transformers"), ("accelerate", "accelerate"), ("keras", "keras")],
)
def test_the_code_of_a_page_runs(page: str, library: str, tmp_path: Path) -> None:
    if not available(library):
        pytest.skip(f"{library} is not installed")
    blocks = re.findall(r"```py\n(.*?)```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    launched(sys.executable, "-W", "ignore", "-c", "\n".join(blocks), folder=tmp_path)
