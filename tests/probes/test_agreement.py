"""A stretch that all ranks keep; between real ranks it is tested in `test_shards.py`."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.cadences import every
from sonde.kernels.merging import absent_rows, all_counts, merge_rows, norm_rows
from sonde.probes.agreement import Agreement

CPU = torch.device("cpu")


def _say(agreement: Agreement, word: float) -> None:
    agreement.hear(torch.tensor(word, dtype=torch.float64))


def test_what_was_said_in_a_step_holds_from_the_next_one_on() -> None:
    agreement = Agreement(CPU)
    held = []
    for word in (2.0, 3.0, 1.0, 5.0):
        agreement.begin()
        held.append(agreement.stretch)
        _say(agreement, word)
    assert held == [1.0, 2.0, 3.0, 1.0]


@given(words=st.lists(st.floats(1, 20), min_size=1, max_size=50), interval=st.integers(1, 5))
def test_steps_that_are_due_follow_from_the_words_alone(words: list[float], interval: int) -> None:
    first, second = Agreement(CPU), Agreement(CPU)
    for word in words:
        for agreement in (first, second):
            agreement.begin()
        assert first.due(every(interval)) == second.due(every(interval))
        assert first.slots(every(interval), 3) == second.slots(every(interval), 3)
        if first.due(every(interval)):
            _say(first, word)
            _say(second, word)
        first.wish = word  # a rank's own business


def test_infinite_wish_ends_it_for_good() -> None:
    agreement = Agreement(CPU)
    agreement.begin()
    _say(agreement, float("inf"))
    said = [agreement.over]
    assert agreement.due(every(1))
    for _ in range(3):
        agreement.begin()
        _say(agreement, 1.0)
        said.append(agreement.over)
        assert not agreement.due(every(1))
        assert not agreement.slots(every(1), 4)
    assert said == [False, True, True, True]


@pytest.fixture
def _waiting_raises() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.usefixtures("_waiting_raises")
def test_on_a_gpu_words_hold_eight_steps_later_and_merging_does_not_wait() -> None:
    device = torch.device("cuda")
    agreement = Agreement(device)
    words = [float(2 + step % 5) for step in range(30)]
    held = []
    for word in words:
        agreement.begin()
        held.append(agreement.stretch)
        parts = torch.stack([absent_rows(4, device), norm_rows(torch.full((4,), word, device=device))])
        merged = merge_rows(parts)
        all_counts(torch.ones(2, 2048, dtype=torch.int32, device=device), [100, 100_000])
        agreement.hear(merged.mean(0)[3])
    assert held == 9 * [1.0] + words[:21]
