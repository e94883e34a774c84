"""The chain as a whole: one rule's fault is not the others', and a doctor who is resumed goes on as before."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from sonde.core.causes import Cause
from sonde.core.frames import Columns, Frame
from sonde.diagnosis.doctor import Doctor
from sonde.rules.generalisation.epoch_assessment import EpochAssessment
from sonde.rules.losses.non_finite_loss import NonFiniteLoss
from sonde.rules.rule import Claims, Look

COLUMNS = Columns("step", ("loss", "grad/norm", "lr"))
LAYERS = Columns("gradients", ("grad/rms@a.weight", "grad/rms@b.weight"))


class Broken:
    """Fails at step 5."""

    code: ClassVar[str] = "TST001"
    name: ClassVar[str] = "broken"
    needs: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {}
    quiet_steps: ClassVar[int] = 10

    def init(self) -> None:
        """Nothing."""

    def step(self, state: None, look: Look) -> tuple[None, tuple[()]]:
        """Fail."""
        return None, () if look.view.step < 5 else 1 / 0  # type: ignore[return-value]


class Counting:
    """Counts the steps at which it is asked."""

    code: ClassVar[str] = "TST002"
    name: ClassVar[str] = "counting"
    needs: ClassVar[tuple[str, ...]] = ("grad/rms@", "val/loss")
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {}
    quiet_steps: ClassVar[int] = 10

    def __init__(self) -> None:
        self.steps: list[int] = []

    def init(self) -> int:
        """Not asked yet."""
        return 0

    def waits(self, state: int) -> bool:
        """Whether it was asked at step 8, which it wants to be until step 10."""
        return 8 <= state < 10

    def step(self, state: int, look: Look) -> tuple[int, tuple[()]]:
        """Count."""
        self.steps.append(look.view.step)
        return look.view.step, ()


def rows(num: int) -> Iterator[Frame]:
    random = np.random.default_rng(1)
    for step in range(1, num + 1):
        loss = 2.0 if step < 150 else 2.0 * 1.3 ** (step - 150)
        values = np.array([loss + random.normal() / 10, loss, 0.1], np.float32)
        yield Frame(COLUMNS, step, 0.0, values)
        if step % 3 == 0:
            yield Frame(LAYERS, step, 0.0, random.random(2).astype(np.float32))


def test_a_rule_that_fails_is_left_out_and_named() -> None:
    doctor = Doctor([Broken()])
    for frame in rows(20):
        doctor.frame(frame)
    (said,) = doctor.diagnosis("run").not_measured
    assert said.startswith("TST001 broken: failed at step 5: ZeroDivisionError")


class Strange(Broken):
    """Of another package: what it gives back is no sighting, and its state is nothing that could be kept."""

    code: ClassVar[str] = "TST003"
    name: ClassVar[str] = "strange"

    def init(self) -> Any:
        return object()

    def step(self, state: Any, look: Look) -> Any:
        return state, ["something"] if look.view.step == 7 else ()


class Refusing(Broken):
    """Cannot begin with its settings."""

    def init(self) -> None:
        raise SystemExit(2)


def test_a_rule_that_cannot_begin_or_gives_back_nonsense_harms_no_other() -> None:
    doctor = Doctor([Refusing(), Strange(), NonFiniteLoss()])
    for frame in rows(20):
        doctor.frame(frame)
    doctor.frame(Frame(COLUMNS, 21, 0.0, np.array([np.nan, 1.0, 0.1], np.float32)))
    assert list(doctor.newly_failed()) == ["TST001 broken", "TST003 strange"]
    assert doctor.newly_failed() == {}
    diagnosis = doctor.diagnosis("run")
    assert [finding.code for finding in diagnosis] == [NonFiniteLoss.code]
    beginning, nonsense = diagnosis.not_measured
    assert beginning.startswith("TST001 broken: failed before the first step: SystemExit(2)")
    assert nonsense.startswith("TST003 strange: failed at step 7: ")


def test_a_checkpoint_leaves_out_what_a_rule_of_another_package_cannot_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor = Doctor([Strange(), NonFiniteLoss()])
    with pytest.raises(TypeError):  # a rule that nobody knows, or one of Sonde's own
        doctor.state_dict()
    monkeypatch.setattr("sonde.diagnosis.doctor.rule_of", {"TST003": Strange, "LOS001": NonFiniteLoss}.get)
    saved = doctor.state_dict()
    assert list(saved["rules"]) == ["LOS001"]
    saved["rules"]["TST003"] = {"state": "gone:Away", "fields": {}}
    other = Doctor([Strange(), NonFiniteLoss()])
    other.load_state_dict(saved)
    for frame in rows(20):
        other.frame(frame)


def test_a_doctor_goes_on_from_what_another_knew() -> None:
    everything = list(rows(260))
    whole = Doctor()
    for frame in everything:
        whole.frame(frame)
    for cut in (1, 140, 171):
        first, second = Doctor(), Doctor()
        for frame in everything[:cut]:
            first.frame(frame)
        saved: Any = json.loads(json.dumps(first.state_dict()))
        second.load_state_dict(saved)
        for frame in everything[cut:]:
            second.frame(frame)
        assert second.diagnosis("run") == whole.diagnosis("run")
    assert any(finding.severity.is_alarm for finding in whole.findings())


def test_a_rule_is_asked_when_what_it_reads_comes_at_facts_and_while_it_waits() -> None:
    rule = Counting()
    doctor = Doctor([rule])
    for step in range(1, 13):
        doctor.frame(Frame(COLUMNS, step, 0.0, np.ones(3, np.float32)))
        if step == 2:
            doctor.event("skipped-step", {})
        if step in (5, 8):
            doctor.frame(Frame(LAYERS, step, 0.0, np.ones(2, np.float32)))
    doctor.settle()
    assert rule.steps == [2, 5, 8, 9, 10]


def test_a_training_whose_steps_are_all_skipped_is_judged_although_no_row_comes() -> None:
    doctor = Doctor()
    told = [finding for total in range(1, 100) for finding in doctor.event("skipped-step", {"total": total})]
    assert [(finding.code, str(finding.causes[0].cause)) for finding in told] == [("OPT003", "precision-overflow")]
    few = Doctor()
    assert not [finding for total in range(1, 30) for finding in few.event("skipped-step", {"total": total})]
    assert not few.settle()


def test_what_to_try_is_said_after_an_epoch_only_where_it_is_new() -> None:
    doctor = Doctor([EpochAssessment()])
    columns = Columns("step", ("loss", "val/loss", "lr", "epoch"))
    said = []
    for epoch, loss in enumerate((3.0, 2.0, 1.999, 1.998, 1.997, 1.5, 1.499), 1):
        row = np.array([loss, loss, 0.1, epoch], np.float32)
        doctor.frame(Frame(columns, epoch, float(epoch), row))
        doctor.settle()
        said.append([line.strip() for line in doctor.after_epoch() if line.startswith("  try: ")])
    assert said[2][0].startswith("try: lower the learning rate")
    assert said[3] == said[4] == []
    assert said[5] == []  # a good epoch needs nothing …
    assert said[6] == said[2]  # … and what comes again after it is said again
