import numpy as np
import pytest

from sonde.core.frames import Columns, Frame
from sonde.rules.layer_depth import latest_typical
from sonde.rules.step_view import StepViews


def typical(*ratios: float) -> float:
    """Of matrices with these ratios."""
    views = StepViews()
    columns = Columns("step", tuple(f"update/ratio@{i}.weight" for i in range(len(ratios))))
    views.take(1, [Frame(columns, 1, 0.0, np.array(ratios, np.float32))], [])
    return latest_typical(views, "update/ratio")


def test_the_typical_ratio_is_the_one_in_the_middle_and_of_two_their_geometric_mean() -> None:
    assert typical(1e-3, 5e-3, 1.0) == pytest.approx(5e-3)
    assert typical(1e-4, 1e-4, 0.3, 0.4) == pytest.approx((1e-4 * 0.3) ** 0.5)
    assert typical(0.0, 2e-3, float("inf")) == 0.0
    assert np.isnan(typical(float("nan")))
