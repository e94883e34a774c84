"""The colours of reports, pages, mails and terminals: one name for one meaning.

Text is readable on its ground (WCAG 2.2, AA: 4.5 to 1), curves stand out from the paper (3 to 1), and no two colours of
series look alike to people who see fewer colours; tests/core/test_palette.py measures all three. `heat-0` to `heat-8`
go from the least value to the largest.

References:
    W3C, Web Content Accessibility Guidelines 2.2, 2023, criteria 1.4.3 and 1.4.11.
    M. Okabe, K. Ito, Color Universal Design, 2008: from their hues the colours of series were searched.
"""

from collections.abc import Mapping

NUM_SERIES = 8
NUM_HEATS = 9

LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "ground": "#f4f6f8",
    "raised": "#ffffff",
    "hover": "#edf1f6",
    "ink": "#1b1f24",
    "soft": "#59636e",
    "link": "#1a56ad",
    "focus": "#0b66c3",
    "line": "#d8dde3",
    "grid": "#e8ebef",
    "band": "#cfe8d4",
    "phase-even": "#f6f8fb",
    "phase-odd": "#edf1f7",
    "unmeasured": "#e4e7eb",
    "critical": "#b42318",
    "critical-ground": "#fdecea",
    "warning": "#955400",
    "warning-ground": "#fff4e0",
    "info": "#1858b4",
    "info-ground": "#e8f0fc",
    "healthy": "#1a7038",
    "healthy-ground": "#e6f4ea",
    "unknown": "#57606b",
    "unknown-ground": "#eff1f4",
    "series-0": "#0b66c3",
    "series-1": "#cc5500",
    "series-2": "#00a969",
    "series-3": "#ae3d92",
    "series-4": "#c28900",
    "series-5": "#5623a9",
    "series-6": "#597ddf",
    "series-7": "#27403e",
    "heat-0": "#f0f4fa",
    "heat-1": "#d8e4f4",
    "heat-2": "#bad0ec",
    "heat-3": "#96b8e1",
    "heat-4": "#6f9cd3",
    "heat-5": "#4a80c2",
    "heat-6": "#2d65aa",
    "heat-7": "#1a4a86",
    "heat-8": "#0d305e",
}

DARK: Mapping[str, str] = {
    "paper": "#171a1f",
    "ground": "#0e1013",
    "raised": "#1e2228",
    "hover": "#20262e",
    "ink": "#e6e9ed",
    "soft": "#9aa4b0",
    "link": "#8db7ff",
    "focus": "#78a9ff",
    "line": "#363d46",
    "grid": "#262b32",
    "band": "#1f4029",
    "phase-even": "#191d23",
    "phase-odd": "#1e232b",
    "unmeasured": "#2a2f36",
    "critical": "#ff8577",
    "critical-ground": "#3a1a17",
    "warning": "#f2b25c",
    "warning-ground": "#35270f",
    "info": "#78a9ff",
    "info-ground": "#17263f",
    "healthy": "#7fca8c",
    "healthy-ground": "#16301d",
    "unknown": "#a0a9b4",
    "unknown-ground": "#21262d",
    "series-0": "#78a9ff",
    "series-1": "#ff9d5c",
    "series-2": "#36e0b1",
    "series-3": "#c76eb0",
    "series-4": "#ffdf4a",
    "series-5": "#9362fd",
    "series-6": "#c4ddff",
    "series-7": "#f9ffff",
    "heat-0": "#16202e",
    "heat-1": "#1b2c45",
    "heat-2": "#213c62",
    "heat-3": "#294f83",
    "heat-4": "#3466a6",
    "heat-5": "#4a82c6",
    "heat-6": "#71a3de",
    "heat-7": "#a0c4ee",
    "heat-8": "#d3e5fa",
}

STATES: Mapping[str, str] = {
    "live": "info",
    "finished": "healthy",
    "exited": "warning",
    "interrupted": "warning",
    "terminated": "warning",
    "crashed": "critical",
    "died": "critical",
}
"""The colour that a run's ending has."""

# Terminals bring their own colours, which fit their background; here is which of them a word gets.
TERMINAL: Mapping[str, str] = {
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "dim",
    "ok": "green",
    "not ok": "bold yellow",
    "not measured": "dim",
    "live": "bold cyan",
    "finished": "green",
    "exited": "yellow",
    "interrupted": "yellow",
    "terminated": "yellow",
    "crashed": "bold red",
    "died": "bold red",
    "nonfinite": "bold red",
    "zero": "yellow",
    "curve": "cyan",
    "label": "dim",
}
"""The style, as Rich has it, of a severity, an outcome, an ending or a part of a drawing."""


def series(place: int) -> str:
    """The name of the colour of the series at a place; they repeat after `NUM_SERIES`."""
    return f"series-{place % NUM_SERIES}"


def as_json() -> dict[str, dict[str, str]]:
    """All that a page needs: `light` and `dark` by name, and the name of the colour of each ending in `states`.

    Example:
        >>> table = as_json()
        >>> table["dark"][table["states"]["died"]]
        '#ff8577'
    """
    return {"light": dict(LIGHT), "dark": dict(DARK), "states": dict(STATES)}


def css(theme: Mapping[str, str]) -> str:
    """A theme as declarations of CSS variables, `--paper` and so on.

    Example:
        >>> css({"paper": "#ffffff", "ink": "#1b1f24"})
        '--paper: #ffffff; --ink: #1b1f24;'
    """
    return " ".join(f"--{name}: {colour};" for name, colour in theme.items())
