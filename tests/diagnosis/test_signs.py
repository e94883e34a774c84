"""What counts as a sign of a cause: what was there in time, where, and what came first."""

from sonde.core.findings import Finding, Severity
from sonde.diagnosis.signs import Signs
from sonde.rules.catalogue import all_rules

SIGNS = Signs(all_rules())
signs, onset = SIGNS.seen, SIGNS.onset


def found(code: str, step: int, *where: str, alarm: bool = True) -> Finding:
    return Finding(
        code=code,
        name="some-condition",
        severity=Severity.WARNING if alarm else Severity.INFO,
        first_step=step,
        last_step=step + 10,
        open=True,
        where=where,
        message="something was seen",
    )


def test_a_sudden_condition_counts_only_where_it_came_in_time() -> None:
    seen = signs([found("LOS003", 100), found("SCH001", 104), found("DAT002", 140)], 100)
    assert {"LOS003", "SCH001"} <= set(seen)
    assert "DAT002" not in seen


def test_weights_are_dated_by_the_next_look_at_them() -> None:
    assert "WGT002" in signs([found("DAT002", 180), found("WGT002", 190)], 180)
    assert "WGT002" not in signs([found("DAT002", 180), found("WGT002", 240)], 180)


def test_signs_say_whether_it_is_an_alarm_and_in_how_many_places() -> None:
    one = signs([found("WGT002", 10, "2.weight")], 10)
    several = signs([found("WGT002", 10, "0.weight", "2.weight", alarm=False)], 10)
    nowhere = signs([found("DAT002", 10)], 10)
    assert {"WGT002", "WGT002!", "WGT002@", "WGT002@1"} == set(one)
    assert {"WGT002", "WGT002@"} == set(several)
    assert {"DAT002", "DAT002!"} == set(nowhere)


def test_what_began_before_all_other_alarms_came_first() -> None:
    assert "ATT001^" in signs([found("ATT001", 27), found("ATT002", 130)], 27)
    early = [found("GRD008", 2), found("ATT003", 2, alarm=False)]  # dated back, and no alarm
    assert "ATT001^" in signs([*early, found("ATT001", 27), found("ATT002", 130)], 27)
    assert "ATT001^" not in signs([found("ATT001", 27)], 27)
    together = signs([found("ATT001", 2), found("ATT002", 2)], 2)
    assert not {"ATT001^", "ATT002^"} & set(together)


def test_what_is_dated_back_tells_no_onset() -> None:
    drift, spike = found("GRD008", 93), found("LOS002", 151)
    assert onset(drift) > 10**9
    assert SIGNS.first_onset([drift, spike]) == 151
