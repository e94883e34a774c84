"""A doctor who is told messages and gives answers: the same beside the training and in a process of its own."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.findings import Finding
from sonde.core.model_table import ModelTable
from sonde.diagnosis.across import Compared, compared
from sonde.diagnosis.doctor import Doctor
from sonde.monitor import wire
from sonde.monitor.wire import Message
from sonde.rules.configuring import configured

if TYPE_CHECKING:
    from sonde.monitor.colleagues import Colleagues

Answer = dict[str, Any]


class Consultation:
    """Takes messages in order, and answers in plain JSON.

    An answer has some of these keys: `new` (findings that are new or worse, with causes and remedies), `closed` (those
    that are over), `all` (every finding, the worst first, as text: it is read only where somebody asks), `rows`
    (numbers that the doctor worked out, to be recorded: table, step, values by tag), `epoch` (lines to be printed at
    its end), `state` (what was asked for), `done`, and `problem`, after which nothing is judged any more.
    """

    def __init__(self, say: Callable[[Answer], None]) -> None:
        self._say = say
        self._settings: dict[str, Any] = {}
        self._folder = ""
        self._colleagues: Colleagues | None = None
        self._across: list[Compared] = []
        self._model: ModelTable | None = None
        self._doctor = Doctor()
        self._broken = False

    def take(self, message: Message) -> None:
        """Be told one message."""
        if self._broken:
            if message.kind in (wire.SAVE, wire.END):  # somebody waits for these
                self._say({"state": None, "done": message.kind == wire.END})
            return
        try:
            self._take(message)
        except Exception as error:  # a rule's fault is not the training's
            self._broken = True
            self._say({"problem": f"{type(error).__name__}: {error}"})
            self.take(message)

    def _take(self, message: Message) -> None:
        doctor = self._doctor
        if message.kind == wire.FRAME:
            self._hear()
            self._found(doctor.frame(message.body))
        elif message.kind == wire.EVENT:
            self._found(doctor.event(message.body["kind"], message.body["data"]))
        elif message.kind == wire.SETTINGS:
            self._settings = message.body
            self._begin()
        elif message.kind == wire.MODEL:
            self._model = None
            with contextlib.suppress(FormatError):  # of a run that is continued, and damaged: as a replay would have it
                self._model = ModelTable.from_json(message.body)
            doctor.describe(self._model)
        elif message.kind == wire.PLACE:
            self._folder = message.body["run"]
            if self._colleagues is not None:
                self._colleagues.folder = self._folder
        elif message.kind == wire.RANKS:
            from sonde.monitor.colleagues import Colleagues  # reads files: 50 MB that few need

            self._colleagues = Colleagues(self._folder)
            self._begin()
        elif message.kind == wire.SAVE:
            self._say({"state": doctor.state_dict()})
        elif message.kind == wire.RESTORE:
            self._begin()
            if message.body is not None:
                self._doctor.load_state_dict(message.body)
        elif message.kind == wire.END:
            self._hear(at_once=True)
            self._found(doctor.settle())
            self._say({"all": _text(doctor.findings()), "done": True})

    def _begin(self) -> None:
        rules, self._across = compared(configured(self._settings))
        self._doctor = Doctor(rules, model=self._model)

    def _hear(self, *, at_once: bool = False) -> None:
        if self._colleagues is not None:
            self._colleagues.tell(self._across, at_once=at_once)

    def _found(self, found: Sequence[Finding]) -> None:
        rows, closed = self._doctor.rows(), self._doctor.newly_closed()
        if not (found or rows or closed):
            return
        answer: Answer = {"rows": rows}
        if any(table == "evaluations" for table, _, _ in rows):
            answer["epoch"] = self._doctor.after_epoch()
        if found or closed:
            answer["new"], answer["closed"] = _plain(found), _plain(closed)
            answer["all"] = _text(self._doctor.findings())
        self._say(answer)


def _text(findings: Sequence[Finding]) -> str:
    return strict_json.dumps([finding.to_json() for finding in findings])


def _plain(findings: Sequence[Finding]) -> list[Any]:
    plain: list[Any] = strict_json.loads(_text(findings))
    return plain
