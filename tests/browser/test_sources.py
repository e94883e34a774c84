"""What of the page can be told without a browser."""

import gzip
import itertools
import re

import pytest
from tests.browser.conftest import BUILT, ROOT
from web.build_page import digest, is_current
from web.make_words import COLOURS, WORDS, colours, words

MOST_BYTES = 150_000  # compressed, all files that a visit loads
_COLOUR = re.compile(r"--([\w-]+): (#[0-9a-f]{6});")
_TEXT = ("ink", "soft", "link", "critical", "warning", "info", "healthy", "unknown")
_GROUNDS = ("paper", "ground", "raised", "hover")


def test_words_and_colours_of_the_page_are_those_of_the_reports() -> None:
    assert WORDS.read_text(encoding="utf-8") == words(), "run: python web/make_words.py"
    assert COLOURS.read_text(encoding="utf-8") == colours(), "run: python web/make_words.py"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_series_are_readable_on_every_ground(theme: str) -> None:
    colours = _colours(theme)
    grounds = [colours[name] for name in _GROUNDS]
    for name, ground in itertools.product(_TEXT, grounds):
        assert contrast(colours[name], ground) >= 4.5, f"{name} on {ground}"
    for name in ("critical", "warning", "info", "healthy", "unknown"):
        assert contrast(colours[name], colours[f"{name}-ground"]) >= 4.5, f"{name} on its own ground"
    for number in range(8):
        assert contrast(colours[f"series-{number}"], colours["paper"]) >= 3, f"series {number}"


@pytest.mark.browser
def test_page_is_built_of_the_sources_that_are_here_and_small() -> None:
    assert is_current(), "run: make page"
    assert (BUILT / "sources.sha256").read_text() == digest()
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in BUILT.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= MOST_BYTES, sizes


def test_page_asks_for_nothing_inline_and_nothing_from_elsewhere() -> None:
    sources = [
        *(ROOT / "web" / "src").rglob("*.ts*"),
        *(ROOT / "web" / "src").rglob("*.css"),
        ROOT / "web" / "index.html",
    ]
    assert sources
    for source in sources:
        text = source.read_text(encoding="utf-8")
        for forbidden in ("innerHTML", "dangerouslySetInnerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert forbidden not in text, source
        addresses = set(re.findall(r"""https?://[^\s"'`)]+""", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, source


def _colours(theme: str) -> dict[str, str]:
    text = (ROOT / "web" / "src" / "styles" / "colours.css").read_text(encoding="utf-8")
    light, dark = text.split(":root[data-theme", 1)
    return dict(_COLOUR.findall(light)) | (dict(_COLOUR.findall(dark)) if theme == "dark" else {})


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
