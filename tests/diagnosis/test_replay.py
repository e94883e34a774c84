"""Events and ranks in the diagnosis of a stored run."""

from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core.findings import Finding
from sonde.store.writer import Writer


def _log(writer: Writer, steps: range) -> None:
    for step in steps:
        writer.log({"loss": 1 / step, "lr": 0.1}, step=step)


def _found(run: Path, code: str) -> list[Finding]:
    return [finding for finding in sonde.diagnose(run) if finding.code == code]


@pytest.mark.parametrize("step", [0, 1, 25, 50, 51])
def test_an_event_is_judged_at_its_step_wherever_it_stands(tmp_path: Path, step: int) -> None:
    with sonde.record(tmp_path) as writer:
        _log(writer, range(1, 51))
        writer.event("monitor-problem", step=step, data={"reason": "a probe failed"})
    (finding,) = _found(tmp_path, "SYS006")
    assert finding.first_step == min(max(step, 1), 50)
    assert "a probe failed" in finding.message


def test_what_happened_on_a_line_that_was_left_does_not_count(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as writer:
        _log(writer, range(1, 41))
        writer.event("monitor-problem", step=35, data={"reason": "late"})
        writer.branch(31)
        writer.event("resumed", step=30)
        _log(writer, range(31, 61))
    assert _found(tmp_path, "SYS006") == []
    with sonde.record(tmp_path) as writer:
        writer.event("monitor-problem", step=35, data={"reason": "on this line"})
    assert [finding.first_step for finding in _found(tmp_path, "SYS006")] == [35]


def _record_ranks(run: Path, norms: list[list[float]], own_s: list[float]) -> None:
    for rank, (values, own) in enumerate(zip(norms, own_s, strict=True)):
        with sonde.record(run / "ranks" / str(rank) if rank else run) as writer:
            _log(writer, range(1, 1 + len(values)))
            for step, norm in enumerate(values, 1):
                row = {"weight/norm": norm, "time/step": 1.0, "time/backward": 1.0 - own}
                writer.log(row, step=step, table="compared")


def test_ranks_that_drift_apart_are_found_from_the_step_at_which_they_began_to(tmp_path: Path) -> None:
    norms = np.linspace(3, 4, 60)
    other = norms + 1e-3 * np.maximum(np.arange(1, 61) - 20, 0)
    _record_ranks(tmp_path, [norms.tolist(), norms.tolist(), other.tolist()], [0.3, 0.3, 0.3])
    (finding,) = _found(tmp_path, "DST002")
    assert (finding.first_step, finding.where) == (21, ("rank 2",))
    assert finding.open
    assert finding.causes[0].cause == "rank-divergence"
    assert _found(tmp_path, "DST001") == []


def test_a_rank_that_the_others_wait_for_is_found(tmp_path: Path) -> None:
    norms = np.linspace(3, 4, 60).tolist()
    _record_ranks(tmp_path, [norms, norms, norms], [0.3, 0.9, 0.3])
    (finding,) = _found(tmp_path, "DST001")
    assert finding.where == ("rank 1",)
    assert _found(tmp_path, "DST002") == []


def test_ranks_that_agree_and_ranks_without_the_series_are_left_in_peace(tmp_path: Path) -> None:
    norms = np.linspace(3, 4, 60).tolist()
    _record_ranks(tmp_path / "agree", [norms, norms], [0.3, 0.3])
    with sonde.record(tmp_path / "without") as writer:
        _log(writer, range(1, 51))
    with sonde.record(tmp_path / "without" / "ranks" / "1") as writer:
        _log(writer, range(1, 51))
    for run in ("agree", "without"):
        assert not [finding for finding in sonde.diagnose(tmp_path / run) if finding.code.startswith("DST")]
