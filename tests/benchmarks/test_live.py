"""What is found while a training runs is what a replay finds; `benchmarks/faults/live.py` asks it of every scenario."""

import importlib

import pytest

QUICK = ("mlp-lr-too-high", "mlp-missing-zero-grad", "mlp-nan-input", "mlp-lr-spike", "healthy-short-run")


@pytest.mark.parametrize("name", QUICK)
def test_live_and_replay_find_the_same(name: str) -> None:
    live, replayed = importlib.import_module("benchmarks.faults.live").both(name, 0)
    assert live == replayed
