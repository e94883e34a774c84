import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.page_hinkley import PageHinkley

from .streams import run

values = st.lists(st.floats(-10, 10) | st.sampled_from([np.nan, np.inf]), min_size=1, max_size=80)


def rises(series: list[float], *, threshold: float, tolerance: float, memory: float, min_values: int) -> list[bool]:
    """One-sided, one value after the other, everything forgotten after an alarm: as river defines it."""
    seen: list[float] = []
    total, out = 0.0, []
    for x in series:
        alarm = False
        if np.isfinite(x):
            seen.append(x)
            total = max(0.0, memory * total + (x - sum(seen) / len(seen) - tolerance))
            alarm = len(seen) >= min_values and total >= threshold
            if alarm:
                seen, total = [], 0.0
        out.append(alarm)
    return out


@given(values)
def test_its_rises_are_those_of_the_slow_loop(series: list[float]) -> None:
    signal = PageHinkley(threshold=6.3, tolerance=0.1, memory=0.99, min_values=4)
    outs = run(signal, series)
    if any(out.fell[0] for out in outs):  # a fall makes both sides forget; the slow loop knows one side only
        return
    expected = rises(series, threshold=6.3, tolerance=0.1, memory=0.99, min_values=4)
    assert [bool(out.rose[0]) for out in outs] == expected


@given(values)
def test_falls_are_the_rises_of_the_mirrored_series(series: list[float]) -> None:
    signal = PageHinkley(threshold=5.0, min_values=3)
    there, mirrored = run(signal, series), run(signal, [-x for x in series])
    assert [(out.rose[0], out.fell[0]) for out in there] == [(out.fell[0], out.rose[0]) for out in mirrored]


def test_a_lasting_change_is_found_soon_after_it_and_noise_alone_is_not() -> None:
    noise = np.random.default_rng(0).normal(size=600)
    signal = PageHinkley(threshold=30.0, tolerance=0.25)
    assert not any(out.rose[0] or out.fell[0] for out in run(signal, noise))
    changed = noise + 3.0 * (np.arange(600) >= 500)
    assert 500 < next(i for i, out in enumerate(run(signal, changed)) if out.rose[0]) < 530


@pytest.mark.parametrize("wrong", [{"threshold": 0.0}, {"tolerance": -1.0}, {"memory": 1.5}, {"min_values": 0}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="PageHinkley"):
        PageHinkley(**wrong)  # type: ignore[arg-type]
