"""The chain of signals, rules and causes over the rows of a run."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sonde.core.errors import FormatError
from sonde.core.findings import Diagnosis, Finding
from sonde.core.frames import Columns, Frame
from sonde.core.model_table import ModelTable
from sonde.diagnosis.circumstances import Circumstances
from sonde.diagnosis.gain_monitor import GainMonitor
from sonde.diagnosis.ledger import Ledger
from sonde.diagnosis.post_epoch import PROPOSED, PostEpoch
from sonde.diagnosis.ranking import Ranking
from sonde.rules.catalogue import own_rules, rule_of
from sonde.rules.configuring import configured
from sonde.rules.generalisation.epoch_assessment import EpochAssessment
from sonde.rules.gradients.gain_drift import GainDrift
from sonde.rules.history.run_summary import RunSummaries
from sonde.rules.rule import Look, Rule, reads_of
from sonde.rules.step_view import Fact, StepView, StepViews
from sonde.rules.tiers import bare
from sonde.signals import states

_FAILURES = (Exception, SystemExit)  # a rule of somebody else's may do anything
_MOST_CHOSEN = 256  # a run has a few dozen mixtures of tables
_MANY_SKIPPED = 40  # steps in a row: a scaler that halves its scale each time has none left to try


class Doctor:
    """Diagnoses a run from its rows, one step after the other.

    The rows of a step come together, sorted by the name of their table, when those of the next step begin: so a run
    that is being recorded and the same run read from disk give the same findings. A rule that fails is left out from
    there on, and named among what was not measured.

    Args:
        rules: Those to apply; all of the catalogue with their default settings where left out.
        model: What the model is made of; None where the run does not say.
    """

    def __init__(self, rules: Iterable[Rule] | None = None, *, model: ModelTable | None = None) -> None:
        self._rules: list[Rule] = configured({}) if rules is None else list(rules)
        self._not_measured: dict[str, str] = {}
        self._newly_failed: dict[str, str] = {}
        self._states: dict[str, Any] = {}
        self._patient = {rule.code: waits for rule in self._rules if (waits := getattr(rule, "waits", None))}
        self._waiting: dict[str, None] = {}
        """The rules that wait for something that they cannot name."""
        for rule in tuple(self._rules):
            try:
                self._states[rule.code] = rule.init()
                if rule.code in self._patient:
                    self._see_waiting(rule.code)
            except _FAILURES as error:
                self._leave_out(rule, f"failed before the first step: {error!r}")
        self._views, self._summaries, self._ledger = StepViews(model), RunSummaries(), Ledger()
        self._summary_state = self._summaries.init()
        self._circumstances = Circumstances()
        self._ranking = Ranking(self._rules)
        self._awaited = {need for rule in self._rules for need in rule.needs}
        """Series that rules need and that have not come yet."""
        self._readers: dict[str, list[str]] = {}
        """The rules that read each tag or path; behind no tag at all those that are always asked."""
        for rule in self._rules:
            for tag in reads_of(rule):
                self._readers.setdefault(tag, []).append(rule.code)
        self._chosen: dict[tuple[str, ...], tuple[Rule, ...]] = {}
        """The rules that are asked, by the tags and paths that a step brings and the findings that are open."""
        self._blind()
        self._step: int | None = None
        self._last = 0
        self._frames: list[Frame] = []
        self._facts: list[Fact] = []
        self._num_steps = 0
        self._proposed: list[str] = []
        """What was said last that might be tried, after an epoch."""
        self._rows: list[tuple[str, int, dict[str, float]]] = []
        self._derived = {table: derived for rule in self._rules for table, derived in _derived(rule)}
        self._derived_states: dict[str, Any] = {table: derived.init() for table, derived in self._derived.items()}

    def describe(self, model: ModelTable | None) -> None:
        """From the next step that is judged on, the model is this one."""
        self._views.describe(model)

    def frame(self, frame: Frame) -> Sequence[Finding]:
        """Take a row; the findings that are new, or worse, after the step before."""
        found: Sequence[Finding] = ()
        if self._step is not None and frame.step != self._step:
            found = self.settle()
        self._step = self._last = frame.step
        self._frames.append(frame)
        return found

    def event(self, kind: str, data: Mapping[str, Any]) -> Sequence[Finding]:
        """Take an event that belongs to the step whose rows came last; the findings that are new, or worse.

        There are some only where many steps in a row were skipped: no row may come any more.
        """
        if kind == "not-measured":
            self._not_measured[str(data.get("tag", ""))] = str(data.get("reason", ""))
        self._facts.append(Fact(kind, data))
        skipped = kind == "skipped-step" and sum(fact.kind == kind for fact in self._facts) >= _MANY_SKIPPED
        return self.settle() if skipped else ()

    def settle(self) -> Sequence[Finding]:
        """Judge the step whose rows are all there."""
        if not self._frames and not _stand_alone(self._facts):
            return ()
        self._frames.sort(key=lambda frame: frame.columns.table)
        view = self._views.take(self._last, self._frames, self._facts)
        self._frames, self._facts, self._step = [], [], None
        self._summary_state, run = self._summaries.step(self._summary_state, view)
        self._num_steps += "loss" in view or "lr" in view or view.layers("lr") is not None
        look = Look(view, self._views, run)
        found: list[Finding] = []
        states, ledger = self._states, self._ledger
        open_codes = ledger.open_codes
        for rule in self._asked(view):
            code = rule.code
            before = states[code]
            try:
                states[code], sightings = rule.step(before, look)
                if sightings or code in open_codes:
                    finding = ledger.take(rule, view.step, sightings)
                    if finding is not None:
                        found.append(finding)
                if code in self._patient and states[code] is not before:
                    self._see_waiting(code)
            except _FAILURES as error:
                self._leave_out(rule, f"failed at step {view.step}: {error!r}")
                self._chosen.clear()
        self._derive(view)
        self._circumstances = self._circumstances.after(view)
        self._ranking.note(run, self._circumstances)
        explained = [self._ranking.explain(finding, self._ledger.findings) for finding in found]
        for finding in explained:
            self._ledger.put(finding)
        return explained

    def _leave_out(self, rule: Rule, reason: str) -> None:
        """The others judge on; what is not judged is said."""
        self._rules.remove(rule)
        self._newly_failed[f"{rule.code} {rule.name}"] = self._not_measured[f"{rule.code} {rule.name}"] = reason

    def newly_failed(self) -> dict[str, str]:
        """Rules that were left out since this was last asked, with the reason."""
        failed, self._newly_failed = self._newly_failed, {}
        return failed

    def _asked(self, view: StepView) -> tuple[Rule, ...]:
        """All where something was said; else those that read what came, that wait, and whose findings are open."""
        open_codes = self._ledger.open_codes
        brought = (*view.tags(), "", *view.paths(), "", *open_codes, "", *self._waiting)
        chosen = self._chosen.get(brought)
        if chosen is None:
            came = {*view.tags(), *(f"{path}@" for path in view.paths())}
            if not self._awaited.isdisjoint(came):
                self._awaited -= came
                self._blind()
            if len(self._chosen) >= _MOST_CHOSEN:
                self._chosen.clear()
            wanted = {*open_codes, *self._waiting}.union(*(self._readers.get(tag, ()) for tag in ("", *came)))
            chosen = self._chosen[brought] = tuple(rule for rule in self._rules if rule.code in wanted)
        return tuple(self._rules) if view.facts else chosen

    def _see_waiting(self, code: str) -> None:
        if self._patient[code](self._states[code]):
            self._waiting[code] = None
        else:
            self._waiting.pop(code, None)

    def _blind(self) -> None:
        """Tell the ranking which rules have not had all that they need."""
        self._ranking.blind(rule.code for rule in self._rules if self._awaited.intersection(rule.needs))

    def _derive(self, view: StepView) -> None:
        for table, derived in self._derived.items():
            self._derived_states[table], values = derived.step(self._derived_states[table], view)
            if values:
                self._rows.append((table, view.step, dict(values)))

    def rows(self) -> list[tuple[str, int, dict[str, float]]]:
        """Numbers worked out on the way since this was last asked, to be recorded: table, step, values by tag."""
        rows, self._rows = self._rows, []
        return rows

    def newly_closed(self) -> list[Finding]:
        """Findings whose condition has not been seen for a while, since this was last asked."""
        return self._ledger.newly_closed()

    def after_epoch(self) -> list[str]:
        """What there is to say about the epoch that ended last, line by line; what to try only where that is new."""
        evaluation = self._derived.get("evaluations")
        if not isinstance(evaluation, PostEpoch):
            return []
        alarms = [finding for finding in self.findings() if finding.open and finding.severity.is_alarm]
        lines = evaluation.report(self._derived_states["evaluations"], self._ranking.remedies, alarms)
        proposed = [line for line in lines if line.startswith(PROPOSED)]
        before, self._proposed = self._proposed, proposed
        return lines if proposed != before else [line for line in lines if line not in proposed]

    def state_dict(self) -> dict[str, Any]:
        """All that another doctor needs to go on as this one would, in values that JSON can say."""
        return {
            "rules": dict(self._dumped_rules()),
            "derived": {table: states.dump(state) for table, state in self._derived_states.items()},
            "run": states.dump(self._summary_state),
            "circumstances": states.dump(self._circumstances),
            "views": states.dump(self._views.state()),
            "findings": [finding.to_json() for finding in self._ledger.findings],
            "frames": [
                states.dump((frame.columns.table, frame.columns.tags, frame.step, frame.time, frame.values))
                for frame in self._frames
            ],
            "facts": [[fact.kind, fact.data] for fact in self._facts],
            "not_measured": self._not_measured,
            "num_steps": self._num_steps,
            "awaited": sorted(self._awaited),
        }

    def _dumped_rules(self) -> Iterator[tuple[str, Any]]:
        for rule in self._rules:
            with contextlib.suppress(*_refusals(rule.code, TypeError)):
                yield rule.code, states.dump(self._states[rule.code])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where another doctor was.

        Rules that it did not have, or that have other settings now, begin anew; so do those of other packages whose
        state cannot be written or read.

        Raises:
            FormatError: it was written by another version of Sonde.
        """
        for kept, saved in ((self._states, state["rules"]), (self._derived_states, state["derived"])):
            for name, fresh in kept.items():
                if name in saved:
                    with contextlib.suppress(*_refusals(name, FormatError)):
                        kept[name] = states.load(saved[name], fresh)
        self._summary_state = states.load(state["run"], self._summary_state)
        self._circumstances = states.load(state["circumstances"], self._circumstances)
        self._views.restore(states.load(state["views"], {}))
        self._ledger.restore(Finding.from_json(plain) for plain in state["findings"])
        self._frames = []
        for plain in state["frames"]:
            saved_frame: Any = states.load(plain, ())
            table, tags, *rest = saved_frame
            self._frames.append(Frame(Columns(table, tags), *rest))
        self._step = self._frames[-1].step if self._frames else None
        self._last = state["num_steps"] if self._step is None else self._step
        self._facts = [Fact(kind, data) for kind, data in state["facts"]]
        self._not_measured, self._num_steps = dict(state["not_measured"]), state["num_steps"]
        self._awaited &= set(state["awaited"])
        self._chosen.clear()
        for code in self._patient.keys() & self._states.keys():
            with contextlib.suppress(*_FAILURES):
                self._see_waiting(code)
        self._blind()
        self._ranking.note(self._summary_state.run, self._circumstances)

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


def _stand_alone(facts: Sequence[Fact]) -> bool:
    """Whether they are worth judging without rows: no step was made, nor may be."""
    kinds = [fact.kind for fact in facts]
    return "out-of-memory" in kinds or kinds.count("skipped-step") >= _MANY_SKIPPED


def _refusals(name: str, refusal: type[Exception]) -> tuple[type[Exception], ...]:
    """What may be wrong with the state of a rule of another package, and not with one of Sonde's own."""
    return () if rule_of(name) in (None, *own_rules()) else (refusal,)


def _derived(rule: Rule) -> Iterable[tuple[str, GainMonitor | PostEpoch]]:
    """What a rule has to show besides its findings, by table."""
    rule = bare(rule)
    if isinstance(rule, GainDrift):
        yield "gradient-monitor", GainMonitor(rule=rule)
    elif isinstance(rule, EpochAssessment):
        yield "evaluations", PostEpoch(rule=rule)
