import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.signals.quantiles import Quantiles

from .streams import run

values = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf]), min_size=1, max_size=40)


@given(values, st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_they_are_numpys_quantiles_of_the_last_finite_values(series: list[float], probabilities: list[float]) -> None:
    signal = Quantiles(probabilities=tuple(probabilities), window=16, min_values=2)
    out = run(signal, series)[-1]
    seen = [x for x in series if np.isfinite(x)][-16:]
    expected = np.quantile(seen, probabilities) if len(seen) >= 2 else np.full(len(probabilities), np.nan)
    assert out[0] == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("wrong", [{"probabilities": ()}, {"probabilities": (1.5,)}, {"min_values": 0}, {"window": 3}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Quantiles"):
        Quantiles(**wrong)  # type: ignore[arg-type]
