"""Rules that compare ranks, told about them while the training goes on."""

import numpy as np

from sonde.core.frames import Columns, Frame
from sonde.diagnosis.across import compared
from sonde.diagnosis.doctor import Doctor
from sonde.rules.ranks.rank_divergence import RankDivergence
from sonde.rules.ranks.rank_series import RankSeries


def _norms(until: int) -> dict[str, RankSeries]:
    steps = np.arange(1, until + 1)
    return {"weight/norm": {0: (steps, np.full(until, 3.0)), 1: (steps, np.where(steps < 8, 3.0, 3.1))}}


def test_what_is_told_late_is_said_once_and_dated_back() -> None:
    rules, (rule,) = compared([RankDivergence()])
    doctor = Doctor(rules)
    columns = Columns("step", ("weight/norm",))
    found = []
    for step in range(1, 31):
        if step in (12, 20):
            rule.tell(_norms(step))
        found += [(step, finding) for finding in doctor.frame(Frame(columns, step, 0.0, np.ones(1, np.float32)))]
    (first,) = {finding.first_step for _, finding in found}
    assert first == 8
    assert found[0][0] == 12, "step 11 is judged when the next begins, with what was told by then"
    assert len(found) == 1


def test_steps_that_this_rank_has_not_made_are_kept_for_later() -> None:
    rules, (rule,) = compared([RankDivergence()])
    doctor = Doctor(rules)
    columns = Columns("step", ("weight/norm",))
    rule.tell(_norms(30))
    found = [step for step in range(1, 20) if doctor.frame(Frame(columns, step, 0.0, np.ones(1, np.float32)))]
    assert found == [9]
