"""Which weights look as if they had just been made."""

import math

from sonde.rules.step_view import StepView

LATEST = 3
"""After this step weights are no longer first ones."""
_AMPLIFIERS = ("Linear", "Conv")  # the beginnings of their classes


def new_sizes(view: StepView) -> tuple[dict[str, float], int]:
    """The RMS of the linear and convolutional layers' weights that look new at the first steps, and how many there are.

    No value of new weights is further out than those of a uniform or normal distribution; weights that were trained
    have outliers.
    """
    model = view.kinds.model
    sizes, largest = view.layers("weight/rms"), view.layers("weight/absmax")
    if model is None or sizes is None or largest is None or view.step > LATEST:
        return {}, 0
    outer = dict(zip(largest.names, largest.values.tolist(), strict=True))
    found, num = {}, 0
    for name, size in zip(sizes.names, sizes.values.tolist(), strict=True):
        row, kind = model.by_name.get(name), model.types.get(name.rpartition(".")[0], "")
        if row is None or len(row.shape) < 2 or not kind.startswith(_AMPLIFIERS) or not size > 0:
            continue
        num += 1
        reach = math.sqrt(2 * math.log(2 * row.num_values)) + 1  # of so many normal numbers, in deviations
        if outer.get(name, math.inf) <= reach * size:
            found[name] = size
    return found, num


def fresh_share(view: StepView) -> float:
    """The share of these layers that look new; NaN where nothing is known of them."""
    found, num = new_sizes(view)
    return len(found) / num if num else math.nan
