"""WGT007 weights-compound."""

import numpy as np
import pytest

from sonde.core.findings import Severity
from sonde.rules.weights.weights_compound import WeightsCompound

from ..traces import alarms, falling, judge, worst

STALLS = [*falling(150, end=0.3, noise=0.02), *np.linspace(0.3, 0.45, 150).tolist()]


def run(
    sizes: list[float], losses: list[float], *, num_matrices: int = 4, every: int = 10, lr: float = 0.01
) -> list[dict[str, float]]:
    table = []
    for i, (size, loss) in enumerate(zip(sizes, losses, strict=True)):
        row = {"loss": loss, "lr": lr, "grad/norm": 1.0}
        if i % every == 0:
            row |= {f"weight/rms@{place}.weight": size * (1 + 0.1 * place) for place in range(num_matrices)}
        table.append(row)
    return table


def test_a_percentage_that_stays_is_a_warning_once_the_loss_stands() -> None:
    sizes = [0.1 * 1.0022**i for i in range(300)]
    seen = judge(WeightsCompound(), run(sizes, STALLS))
    assert seen[0][1].severity is Severity.INFO
    assert 120 <= seen[0][0] <= 160
    assert 180 <= alarms(seen)[0][0] <= 260


def test_while_the_loss_falls_it_is_information() -> None:
    sizes = [0.1 * 1.0022**i for i in range(300)]
    assert worst(judge(WeightsCompound(), run(sizes, falling(300, noise=0.01)))) is Severity.INFO


@pytest.mark.parametrize(
    "sizes",
    [
        [0.1 * (1 + 0.003 * i) for i in range(300)],  # as many steps of one length give
        [0.1 * (1 + 0.06 * i**0.5) for i in range(300)],  # a random walk
        [0.1 if i < 150 else 0.2 for i in range(300)],  # a jump
        [0.1 * 1.0005**i for i in range(300)],  # 16% in all
        [0.1 * 0.998**i for i in range(300)],
    ],
)
def test_growth_that_slows_down_jumps_is_small_or_none_is_silent(sizes: list[float]) -> None:
    assert judge(WeightsCompound(), run(sizes, STALLS)) == []


def test_a_single_matrix_a_rate_that_changes_and_missing_looks_are_not_judged() -> None:
    sizes = [0.1 * 1.0022**i for i in range(300)]
    assert judge(WeightsCompound(), run(sizes, STALLS, num_matrices=1)) == []
    warmup = [row | {"lr": 1e-5 * (i + 1)} for i, row in enumerate(run(sizes, STALLS))]
    assert judge(WeightsCompound(), warmup) == []
    assert judge(WeightsCompound(), run(sizes, STALLS, every=60)) == []
    missing = [row | {tag: np.nan for tag in row if tag.startswith("weight")} for row in run(sizes, STALLS)]
    assert judge(WeightsCompound(), missing) == []
