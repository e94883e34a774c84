"""The colours can be read and told apart, on light and on dark paper, by people who see fewer of them too."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from sonde.core.palette import DARK, LIGHT, NUM_HEATS, NUM_SERIES, STATES, TERMINAL, as_json, css, series
from sonde.core.records import Ending

Colours = npt.NDArray[np.float64]

# G. Machado, M. Oliveira, L. Fernandes, A Physiologically-based Model for Simulation of Color Vision Deficiency, IEEE
# TVCG 15(6), 2009: the matrices of full deficiency, for linear RGB.
SIGHTS = {
    "all colours": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


def _linear(colour: str) -> Colours:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def _luminance(colour: str) -> float:
    return float(_linear(colour) @ [0.2126, 0.7152, 0.0722])


def _contrast(first: str, second: str) -> float:
    """By WCAG 2.2."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _oklab(linear: Colours) -> Colours:
    """B. Ottosson, A perceptual color space for image processing, 2020: distances are as large as they look."""
    cones = np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]])
    axes = np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]])
    lab: Colours = np.cbrt(np.clip(linear, 0, 1) @ cones.T) @ axes.T
    return lab


@THEMES
@pytest.mark.parametrize("ground", ["paper", "ground", "raised", "hover"])
@pytest.mark.parametrize("ink", ["ink", "soft", "link", "critical", "warning", "info", "healthy", "unknown"])
def test_text_is_readable_on_every_ground(theme: dict[str, str], ink: str, ground: str) -> None:
    assert _contrast(theme[ink], theme[ground]) >= 4.5


@THEMES
@pytest.mark.parametrize("severity", ["critical", "warning", "info", "healthy", "unknown"])
def test_text_is_readable_on_the_ground_of_a_severity(theme: dict[str, str], severity: str) -> None:
    for ink in ("ink", "soft", severity):
        assert _contrast(theme[ink], theme[f"{severity}-ground"]) >= 4.5


@THEMES
def test_curves_stand_out_from_the_paper(theme: dict[str, str]) -> None:
    lines = ["focus", *(series(i) for i in range(NUM_SERIES))]
    assert min(_contrast(theme[line], theme["paper"]) for line in lines) >= 3


@THEMES
@pytest.mark.parametrize("sight", SIGHTS)
def test_no_two_series_look_alike(theme: dict[str, str], sight: str) -> None:
    seen = [_oklab(_linear(theme[series(i)]) @ SIGHTS[sight].T) for i in range(NUM_SERIES)]
    # Okabe and Ito's own colours, some of which are too pale for lines, are 0.076 apart.
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) >= 0.065


@THEMES
def test_larger_values_are_further_from_the_paper(theme: dict[str, str]) -> None:
    away = [abs(_luminance(theme[f"heat-{i}"]) - _luminance(theme["paper"])) for i in range(NUM_HEATS)]
    assert away == sorted(away)


def test_both_themes_name_the_same_colours_and_every_ending_has_one() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert STATES.keys() == {ending.value for ending in Ending} <= TERMINAL.keys()
    assert set(STATES.values()) <= LIGHT.keys()
    assert as_json()["dark"] == DARK
    assert css(LIGHT).count("--series-") == NUM_SERIES
