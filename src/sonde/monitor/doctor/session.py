"""What the doctor does with messages: the same on a thread of the training and in a process of its own."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.findings import Finding
from sonde.core.model_table import ModelTable
from sonde.diagnosis.across import compared
from sonde.diagnosis.doctor import Doctor
from sonde.diagnosis.plugin_rules import described
from sonde.monitor.doctor import wire
from sonde.monitor.doctor.wire import Answer, Message
from sonde.rules.configuring import configured

if TYPE_CHECKING:
    from sonde.monitor.doctor.rank_reader import RankReader


class Session:
    """Takes messages in order, and gives answers that JSON can say.

    An answer has some of these keys: `findings` (those that are new, worse or, where they are not open any more, over,
    with causes and remedies), `all` (every finding, the worst first, as text: it is read only where somebody asks),
    `rows` (numbers that the doctor worked out, to be recorded: table, step, values by tag), `epoch` (lines to be
    printed at its end), `plugin_rules` (rules of other packages that judge, and those that are left out: at the first
    row), `failed` (rules that failed and judge no more, with the reason), `begins_anew` (whether a state that was to be
    restored is of another version), `state` (what `SAVE` asked for, and the step that came with it), and `problem`,
    after which nothing is judged any more.
    """

    def __init__(self, say: Callable[[Answer], None]) -> None:
        self._say = say
        self._settings: dict[str, Any] = {}
        self._folder = ""
        self._rank_reader: RankReader | None = None
        self._is_broken = False
        self._restored = -1
        self._is_introduced = False
        self._model: ModelTable | None = None
        self._begin()

    def take(self, message: Message) -> None:
        """Take one message."""
        try:
            if not self._is_broken:
                return self._take(*message)
        except Exception as error:  # a rule's fault is not the training's
            self._is_broken = True
            self._say({"problem": f"{type(error).__name__}: {error}"})
        if message.kind == wire.SAVE:  # somebody waits for it
            self._say({"state": None})

    def _take(self, kind: bytes, body: Any) -> None:
        doctor = self._doctor
        if kind == wire.FRAME:
            self._introduce()
            self._read_ranks()
            self._answer(doctor.frame(body))
        elif kind == wire.EVENT:
            self._answer(doctor.event(body["kind"], body["data"]))
        elif kind == wire.START:
            self._settings = body["rules"]
            if body["together"]:
                from sonde.monitor.doctor.rank_reader import RankReader  # reads files: 50 MB that few need

                self._rank_reader = RankReader()
            self._begin()
        elif kind == wire.MODEL:
            self._model = None
            with contextlib.suppress(FormatError):  # of a run that is continued, and damaged: as a replay would have it
                self._model = ModelTable.from_json(body)
            doctor.describe(self._model)
        elif kind == wire.PLACE:
            self._folder = body["run"]
        elif kind == wire.SAVE:
            self._say({"state": (doctor.state_dict(), body)})
        elif kind == wire.RESTORE:
            self._begin()
            self._restored = body["step"]
            if body["state"] is not None:
                self._restore(body["state"])
        elif kind == wire.END:
            self._read_ranks(at_once=True)
            self._answer(doctor.settle(), is_last=True)

    def _begin(self) -> None:
        self._rules, self._comparing = compared(configured(self._settings))
        self._doctor = Doctor(self._rules, model=self._model)

    def _restore(self, state: Mapping[str, Any]) -> None:
        try:
            self._doctor.load_state_dict(state)
        except (FormatError, KeyError):  # of another version of Sonde
            self._begin()
            self._say({"begins_anew": True})

    def _introduce(self) -> None:
        if not self._is_introduced:
            self._is_introduced = True
            told = described(self._rules)
            if any(told.values()):
                self._say({"plugin_rules": told})

    def _read_ranks(self, *, at_once: bool = False) -> None:
        if self._rank_reader is not None:
            self._rank_reader.tell(self._comparing, self._folder, at_once=at_once)

    def _answer(self, found: Sequence[Finding], *, is_last: bool = False) -> None:
        if failed := self._doctor.newly_failed():
            self._say({"failed": failed})
        findings = [*found, *self._doctor.newly_closed()]
        # The last step before a checkpoint is judged after it, by the session that made it and again by this one.
        rows = [row for row in self._doctor.rows() if row[1] > self._restored]
        if not (rows or findings or is_last):
            return
        answer: Answer = {"rows": rows}
        if any(table == "evaluations" for table, _, _ in rows):
            answer["epoch"] = self._doctor.after_epoch()
        if findings or is_last:
            answer["findings"] = [finding.to_json() for finding in findings]
            answer["all"] = strict_json.dumps([finding.to_json() for finding in self._doctor.findings()])
        self._say(answer)
