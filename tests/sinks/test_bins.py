import numpy as np
import pytest

from sonde.sinks.bins import EDGES, NUM_BINS, occupied


def test_the_edges_are_those_that_histograms_are_made_with() -> None:
    pytest.importorskip("torch", reason="who makes histograms needs torch")
    from sonde.kernels.histograms import NUM_COARSE, coarse_edges

    lower, upper = coarse_edges()
    assert NUM_BINS == NUM_COARSE
    np.testing.assert_array_equal(EDGES[:-1], lower)
    np.testing.assert_array_equal(EDGES[1:], upper)


def test_no_count_is_lost_with_the_empty_bins_at_the_ends() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        counts = np.zeros(NUM_BINS, np.float32)
        counts[random.integers(0, NUM_BINS, 5)] = random.integers(1, 1000, 5)
        found, edges = occupied(counts)
        assert len(edges) == len(found) + 1
        assert found.sum() == counts.sum()
        assert found[0] > 0
        assert found[-1] > 0
        for left, count in zip(edges, found, strict=False):
            assert counts[np.flatnonzero(left == EDGES)[0]] == count


def test_no_value_has_no_bins() -> None:
    found, edges = occupied(np.zeros(NUM_BINS, np.float32))
    assert len(found) == len(edges) == 0
