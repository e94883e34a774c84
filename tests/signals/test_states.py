import numpy as np
import pytest

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.signals.ema import Ema
from sonde.signals.phases import Phases
from sonde.signals.robust_z import RobustZ
from sonde.signals.states import dump, load


def test_a_state_of_extreme_numbers_comes_back_bit_for_bit() -> None:
    state = RobustZ(window=20).init(1)
    state.window[0, -5:] = [np.inf, -np.inf, 0.1, 5e-324, 1.7976931348623157e308]
    text = strict_json.dumps(dump(state))
    back = load(strict_json.loads(text), RobustZ(window=20).init(1))
    assert np.array_equal(back.window, state.window, equal_nan=True)


def test_arrays_keep_their_types() -> None:
    back = load(dump(Phases().init(3)), Phases().init(3))
    assert [part.dtype for part in back] == [part.dtype for part in Phases().init(3)]


def test_no_tags_are_a_state_too() -> None:
    assert load(dump(RobustZ().init(0)), RobustZ().init(0)).window.shape == (0, 128)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "list"),
        ({"raw": [0.0]}, "not a state"),
        ({**dump(Ema().init(1)), "fields": {"raw": [0.0]}}, "other fields"),
        ({**dump(Ema().init(1)), "fields": {"raw": ["zero"], "num_values": [0]}}, "other settings"),
        ({**dump(Ema().init(1)), "fields": {"raw": None, "num_values": [0]}}, "other settings"),
        (dump(RobustZ().init(1)), "EmaState"),
    ],
)
def test_what_is_no_state_of_that_signal_is_refused(value: object, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load(value, Ema().init(1))


def test_a_state_of_other_settings_is_refused() -> None:
    with pytest.raises(FormatError, match="other settings"):
        load(dump(RobustZ(window=128).init(2)), RobustZ(window=64).init(2))
