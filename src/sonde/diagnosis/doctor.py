"""The chain of signals, rules and causes over the rows of a run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sonde.core.findings import Diagnosis, Finding
from sonde.core.frames import Frame
from sonde.diagnosis.ledger import Ledger
from sonde.diagnosis.ranking import Ranking
from sonde.rules.catalogue import RULES
from sonde.rules.picture import Pictures
from sonde.rules.rule import Look, Rule
from sonde.rules.scene import Fact, Scenes


class Doctor:
    """Diagnoses a run from its rows, one step after the other.

    The rows of a step come together, sorted by the name of their table, when those of the next step begin: so a run
    that is being recorded and the same run read from disk give the same findings.

    Args:
        rules: Those to apply; all of the catalogue with their default settings where left out.
    """

    def __init__(self, rules: Iterable[Rule] | None = None) -> None:
        self._rules: list[Rule] = [kind() for kind in RULES] if rules is None else list(rules)
        self._states: dict[str, Any] = {rule.code: rule.init() for rule in self._rules}
        self._scenes, self._pictures, self._ledger = Scenes(), Pictures(), Ledger()
        self._picture_state = self._pictures.init()
        self._ranking = Ranking(self._rules)
        self._step: int | None = None
        self._frames: list[Frame] = []
        self._facts: list[Fact] = []
        self._not_measured: dict[str, str] = {}
        self._num_steps = 0

    def frame(self, frame: Frame) -> Sequence[Finding]:
        """Take a row; the findings that are new, or worse, after the step before."""
        found: Sequence[Finding] = ()
        if self._step is not None and frame.step != self._step:
            found = self.settle()
        self._step = frame.step
        self._frames.append(frame)
        return found

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take an event that belongs to the step whose rows came last."""
        if kind == "not-measured":
            self._not_measured[str(data.get("tag", ""))] = str(data.get("reason", ""))
        self._facts.append(Fact(kind, data))

    def settle(self) -> Sequence[Finding]:
        """Judge the step whose rows are all there."""
        if self._step is None or not self._frames:
            return ()
        frames = sorted(self._frames, key=lambda frame: frame.columns.table)
        scene = self._scenes.take(self._step, frames, self._facts)
        self._frames, self._facts, self._step = [], [], None
        self._picture_state, picture = self._pictures.step(self._picture_state, scene)
        self._num_steps += "loss" in scene or "lr" in scene
        look = Look(scene, self._scenes, picture)
        found: list[Finding] = []
        for rule in self._rules:
            self._states[rule.code], sightings = rule.step(self._states[rule.code], look)
            finding = self._ledger.take(rule, scene.step, sightings)
            if finding is not None:
                found.append(finding)
        self._ranking.note(picture)
        explained = [self._ranking.explain(finding, self._ledger.findings) for finding in found]
        for finding in explained:
            self._ledger.put(finding)
        return explained

    def findings(self) -> tuple[Finding, ...]:
        """All findings so far, each with its causes in the light of everything that is known by now."""
        findings = self._ledger.findings
        return self._ranking.ordered([self._ranking.explain(finding, findings) for finding in findings])

    def diagnosis(self, run: str) -> Diagnosis:
        """The verdict on the run so far."""
        self.settle()
        return Diagnosis(
            run=run,
            steps=self._num_steps,
            findings=self.findings(),
            not_measured=tuple(f"{tag}: {reason}" for tag, reason in sorted(self._not_measured.items())),
        )
