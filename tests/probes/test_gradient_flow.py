"""Flow ratios from block to block, against plain norms."""

import math

import numpy as np
import pytest

from sonde.probes.gradient_flow import GradientFlow

NAMES = ("embedding.weight", "blocks.0.a.weight", "blocks.0.a.bias", "blocks.1.a.weight", "blocks.10.a.weight")
BLOCKS = [["blocks.0", "blocks.1", "blocks.10"]]
NOTHING = np.empty(0)


def flows(flow: GradientFlow) -> dict[str, float]:
    rows = list(flow(NOTHING))
    return {tag: float(value) for row in rows for tag, value in zip(row.columns.tags, row.values, strict=True)}


def test_the_norm_of_a_block_is_told_over_that_of_the_next() -> None:
    flow = GradientFlow(BLOCKS)
    flow.note(NAMES, np.array([9.0, 3.0, 4.0, 10.0, 40.0]))
    assert flows(flow) == pytest.approx({"grad/flow@blocks.0": 0.5, "grad/flow@blocks.1": 0.25})
    assert flows(flow) == {}, "told once"


def test_a_block_may_be_shared_out_among_optimisers() -> None:
    flow = GradientFlow(BLOCKS)
    flow.note(NAMES[:2], np.array([9.0, 3.0]))
    flow.note(NAMES[2:], np.array([4.0, 10.0, 40.0]))
    assert flows(flow) == pytest.approx({"grad/flow@blocks.0": 0.5, "grad/flow@blocks.1": 0.25})


def test_blocks_without_gradients_are_passed_over_and_models_kept_apart() -> None:
    flow = GradientFlow([*BLOCKS, ["D.0", "D.1"]])
    flow.note((NAMES[1], NAMES[4], "D.0.weight", "D.1.weight"), np.array([3.0, 6.0, 8.0, 2.0]))
    assert flows(flow) == pytest.approx({"grad/flow@blocks.0": 0.5, "grad/flow@D.0": 4.0})
    flow.note(NAMES[:2], np.array([1.0, 2.0]))
    assert flows(flow) == {}, "there is no next one"


def test_extreme_norms_stay_in_range_and_zero_is_not_divided_by() -> None:
    flow = GradientFlow(BLOCKS)
    for size in (1e-200, 1e200):
        flow.note(NAMES, size * np.array([0.0, 3.0, 4.0, 10.0, 40.0]))
        assert flows(flow)["grad/flow@blocks.0"] == pytest.approx(0.5)
    flow.note(NAMES, np.array([1.0, 3.0, 4.0, 0.0, math.nan]))
    found = flows(flow)
    assert all(map(math.isnan, found.values()))
