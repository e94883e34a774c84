"""What the doctor answers to messages."""

import math
from typing import Any

import numpy as np
import pytest

from sonde.core.frames import Columns, Frame
from sonde.monitor.doctor import wire
from sonde.monitor.doctor.session import Session
from sonde.monitor.doctor.wire import Answer, Message

COLUMNS = Columns("step", ("loss", "grad/norm", "lr"))


def row(step: int, loss: float) -> Message:
    return Message(wire.FRAME, Frame(COLUMNS, step, 0.0, np.array([loss, loss, 0.1], np.float32)))


def told(*messages: Message) -> list[Answer]:
    answers: list[Answer] = []
    session = Session(answers.append)
    for message in messages:
        session.take(message)
    return answers


def findings(answers: list[Answer]) -> list[tuple[str, bool]]:
    return [(finding["code"], finding["open"]) for answer in answers for finding in answer.get("findings", ())]


def test_a_finding_is_told_once_and_that_it_is_over_as_well() -> None:
    losses = [9.0 if step == 300 else 1.0 + 0.01 * math.sin(step) for step in range(1, 1500)]
    answers = told(*(row(step, loss) for step, loss in enumerate(losses, 1)), Message(wire.END, None))
    spikes = [is_open for code, is_open in findings(answers) if code == "LOS002"]
    assert spikes == [True, False]


def test_a_state_comes_with_the_step_that_was_asked_with_and_is_gone_on_from() -> None:
    rows = [row(step, math.nan if step > 30 else 1 / step) for step in range(1, 60)]
    whole = told(*rows, Message(wire.END, None))
    (first,) = [answer["state"] for answer in told(*rows[:20], Message(wire.SAVE, 20)) if "state" in answer]
    state, step = first
    assert step == 20
    restored = told(Message(wire.RESTORE, {"state": state, "step": step}), *rows[20:], Message(wire.END, None))
    assert findings(whole)
    assert restored[-1]["all"] == whole[-1]["all"]


@pytest.mark.parametrize("part", ["run", "views", "rules"])
def test_a_state_of_another_version_is_said_once_and_judging_begins_anew(part: str) -> None:
    rows = [row(step, math.nan if step > 30 else 1 / step) for step in range(1, 60)]
    (first,) = [answer["state"] for answer in told(*rows[:20], Message(wire.SAVE, 20)) if "state" in answer]
    state, step = first
    other = {"state": "sonde.rules.gone:Gone", "fields": {}}
    state[part] = dict.fromkeys(state["rules"], other) if part == "rules" else other
    for changed in (state, {key: value for key, value in state.items() if key != part}):
        answers = told(Message(wire.RESTORE, {"state": changed, "step": step}), *rows[20:], Message(wire.END, None))
        assert [answer for answer in answers if "begins_anew" in answer or "problem" in answer] == [
            {"begins_anew": True}
        ]
        assert "LOS001" in dict(findings(answers))


def test_rows_of_steps_before_the_checkpoint_are_not_given_again() -> None:
    epochs = [Message(wire.FRAME, _epoch(step)) for step in (1, 2, 3, 4)]
    end = Message(wire.END, None)
    assert _steps_given(told(*epochs, end)) == {1, 2, 3, 4}
    (state, _) = told(*epochs[:3], Message(wire.SAVE, 3))[-1]["state"]  # the third is judged when the fourth comes
    assert _steps_given(told(Message(wire.RESTORE, {"state": state, "step": 3}), epochs[3], end)) == {4}


def _steps_given(answers: list[Answer]) -> set[int]:
    return {step for answer in answers for _, step, _ in answer.get("rows", ())}


def _epoch(step: int) -> Frame:
    return Frame(Columns("step", ("loss", "val/loss")), step, 0.0, np.array([1 / step, 1.1 / step], np.float32))


def test_what_goes_wrong_is_said_once_and_whoever_waits_is_answered() -> None:
    damaged: Any = {"kind": "note"}  # no data
    answers = told(Message(wire.EVENT, damaged), Message(wire.SAVE, 3), row(1, 1.0), Message(wire.END, None))
    assert answers == [{"problem": "KeyError: 'data'"}, {"state": None}]
