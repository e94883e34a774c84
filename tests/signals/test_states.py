import numpy as np
import pytest

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.signals.ema import Ema
from sonde.signals.phases import Phases
from sonde.signals.robust_z import RobustZ
from sonde.signals.states import from_json, to_json


def test_a_state_of_extreme_numbers_comes_back_bit_for_bit() -> None:
    state = RobustZ(window=20).init(1)
    state.window[0, -5:] = [np.inf, -np.inf, 0.1, 5e-324, 1.7976931348623157e308]
    text = strict_json.dumps(to_json(state))
    back = from_json(RobustZ(window=20).init(1), strict_json.loads(text))
    assert np.array_equal(back.window, state.window, equal_nan=True)


def test_arrays_keep_their_types() -> None:
    back = from_json(Phases().init(3), to_json(Phases().init(3)))
    assert [part.dtype for part in back] == [part.dtype for part in Phases().init(3)]


def test_no_tags_are_a_state_too() -> None:
    assert from_json(RobustZ().init(0), to_json(RobustZ().init(0))).window.shape == (0, 128)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "list"),
        ({"raw": [0.0]}, "num_values"),
        ({"raw": [0.0, 1.0], "num_values": [0, 1]}, "shape"),
        ({"raw": ["zero"], "num_values": [0]}, "numbers"),
        ({"raw": None, "num_values": [0]}, "numbers|shape"),
    ],
)
def test_what_is_no_state_of_that_signal_is_refused(value: object, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        from_json(Ema().init(1), value)


def test_a_state_of_other_settings_is_refused() -> None:
    with pytest.raises(FormatError, match="other settings"):
        from_json(RobustZ(window=64).init(2), to_json(RobustZ(window=128).init(2)))
