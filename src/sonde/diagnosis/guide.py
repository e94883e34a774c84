"""A training debugged in order: seven looks, what each showed in this run, and what comes of them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sonde.core.causes import Cause
from sonde.core.findings import Diagnosis, Finding
from sonde.core.groups import Group
from sonde.core.quantities import amount, share
from sonde.core.records import Window
from sonde.diagnosis.looks import USUAL_RATIO, Answer, GuideStep, Measured, alarms_first, looks, since


class _Test(NamedTuple):
    """Where a cause shows, and what would decide whether it is the one."""

    shows_in: str
    decides: str


_RATE_DOWN = "some 50 steps from the same start at a fifth of the rate: the trouble goes, or comes later"
_RATE_UP = "some 50 steps from the same start at five times the rate: the loss falls faster and stays calm"
_CLIPPED = "the same steps with the gradient norm clipped at its usual value"
_DEPTH = "`grad/rms@…` from the last layer to the first, at step 0 and now"
_SETTLE = "some 100 steps at half the rate: a loss that falls at once was bouncing"
_HEART = "one batch learnt by heart: if that works, look at labels and inputs; if not, at model and rate"
_FORMAT = "the same steps in float32"
_TESTS = {
    Cause.LR_TOO_HIGH: _Test("update/ratio", _RATE_DOWN),
    Cause.WARMUP_TOO_SHORT: _Test("update/ratio", "the same start with a warm-up ten times as long"),
    Cause.LR_SPIKE: _Test("lr", "`lr` at that step against its neighbours"),
    Cause.LR_TOO_LOW: _Test("update/ratio", _RATE_UP),
    Cause.CLIP_TOO_AGGRESSIVE: _Test("update/ratio", "`clip/rate`, and some 50 steps without the clip"),
    Cause.SCHEDULE_DECAYS_TOO_FAST: _Test("update/ratio", _RATE_UP),
    Cause.MISSING_LR_DECAY: _Test("loss", _SETTLE),
    Cause.PLATEAU: _Test("loss", _SETTLE),
    Cause.VANISHING_GRADIENTS: _Test("grad/rms@", _DEPTH),
    Cause.BAD_INITIALISATION: _Test("grad/rms@", _DEPTH),
    Cause.EXPLODING_GRADIENTS: _Test("grad/norm", _CLIPPED),
    Cause.MISSING_CLIPPING: _Test("grad/norm", _CLIPPED),
    Cause.BAD_BATCH: _Test("loss", "`batch/absmax@…` and `label/…` at that step against their neighbours"),
    Cause.DEAD_UNITS: _Test("grad/zeros@", "`act/dead@…` and `grad/zeros@…` of each layer"),
    Cause.SATURATED_UNITS: _Test("act/saturated@", "`act/saturated@…` of each layer"),
    Cause.OVERFITTING: _Test("val/loss", "`val/loss` against `loss` over three more evaluations"),
    Cause.MISSING_REGULARISATION: _Test("val/loss", "`val/loss` against `loss` over three more evaluations"),
    Cause.UNDERFITTING: _Test("loss", "the same data with a model twice as wide"),
    Cause.INSUFFICIENT_CAPACITY: _Test("loss", "the same data with a model twice as wide"),
    Cause.LABEL_NOISE: _Test("loss", "the labels of the examples with the largest losses"),
    Cause.NO_LEARNABLE_SIGNAL: _Test("loss", _HEART),
    Cause.UNNORMALISED_INPUTS: _Test("loss", "`batch/std@…` and `batch/scale_spread@…`"),
    Cause.DATA_DRIFT: _Test("loss", "`batch/mean@…` and `batch/std@…` over the run"),
    Cause.PRECISION_OVERFLOW: _Test("loss", _FORMAT),
    Cause.PRECISION_UNDERFLOW: _Test("update/ratio", _FORMAT),
}


_LEVEL = 20  # values whose median is a level
_NOT_OF_LEARNING = ("SYS", "DST")  # speed, memory and ranks, of which the loss says nothing


def guide(measured: Measured, diagnosis: Diagnosis) -> tuple[GuideStep, ...]:
    """The seven looks: loss, gradient norms, update ratios, distributions, cause, fix, recovery.

    The group that leads the diagnosis gives the cause, the remedies, and where it would show that one of them worked.
    Findings of the loop itself, of speed and of memory stand at the cause.

    Example:
        >>> looked = guide(Measured({}, {}), Diagnosis(run="runs/demo", steps=100))
        >>> [f"{look.name}: {look.answer}" for look in looked][4:]
        ['cause: none', 'fix: none', 'recovery: none needed']
    """
    seen = looks(measured, diagnosis)
    placed = {id(finding) for look in seen for finding in look.findings}
    others = alarms_first([finding for finding in diagnosis if id(finding) not in placed])
    lead = diagnosis.lead
    return (*seen, _cause(lead, diagnosis, seen)._replace(findings=others), _fix(lead), _recovery(lead, measured, seen))


def _cause(lead: Group | None, diagnosis: Diagnosis, seen: Sequence[GuideStep]) -> GuideStep:
    name, question = "cause", "What explains what was seen?"
    if lead is None:
        if reasons := "; ".join(diagnosis.not_enough):
            return GuideStep(name, question, "not known", said=(f"there is not enough to judge: {reasons}",))
        return GuideStep(name, question, "none", said=("no alarm was found: nothing is to be explained",))
    first, suspect = lead.findings[0], lead.suspect
    num = len(lead.alarms) - 1
    of = f"{first.code} {first.name}, {since(first)}" + (f", and {num} more alarm{'s' * (num > 1)}" if num else "")
    others = [f"another cause: {group.summary}" for group in diagnosis.groups if group.findings != lead.findings]
    if suspect is None:
        return GuideStep(name, question, "not known", said=(f"{of}: cause not known", *_deciding(lead, seen), *others))
    less = [f"or: {other}" for other in lead.others if other.is_sure]
    said = f"{of}: {suspect.cause.meaning}", f"confidence {suspect.confidence:.2g}: {suspect.because}", *less, *others
    return GuideStep(name, question, suspect.cause.value, said=said)


def _deciding(lead: Group, seen: Sequence[GuideStep]) -> Iterator[str]:
    first = lead.findings[0]
    for suspect in lead.others[:2]:
        yield f"perhaps {suspect}"
        if suspect.cause in _TESTS:
            yield f"what would decide: {_TESTS[suspect.cause].decides}"
    if not lead.others:
        tags = ", ".join(dict.fromkeys(item.tag for item in first.evidence)) or "every series"
        yield f"what would decide: {tags} around step {first.first_step:,}, and what moved first there"
    for tag, how in (missing for look in seen if first in look.findings for missing in look.missing):
        yield f"{tag}{'…' * tag.endswith(('@', '/'))} was not measured, and may decide it: {how}"


def _fix(lead: Group | None) -> GuideStep:
    name, question = "fix", "What is to be changed? One thing at a time."
    if lead is None:
        return GuideStep(name, question, "none", said=("nothing is to be changed",))
    if not lead.remedies:
        return GuideStep(name, question, "none", said=("nothing is proposed: find the cause first",))
    said = tuple(f"{'or' if i else 'try'}: {remedy}" for i, remedy in enumerate(lead.remedies))
    return GuideStep(name, question, lead.remedies[0].action.value, said=said)


def _recovery(group: Group | None, measured: Measured, seen: Sequence[GuideStep]) -> GuideStep:
    name, question = "recovery", "Where does it show that the fix worked, and how soon?"
    if group is None:
        return GuideStep(name, question, "none needed", said=("nothing is to be recovered from",))
    lead = group.findings[0]
    test = None if group.cause is None else _TESTS.get(group.cause)
    lines = [_first_sign(test.shows_in, lead, measured, seen) if test is not None else _of_evidence(lead)]
    if not (lead.code.startswith(_NOT_OF_LEARNING) or (test is not None and test.shows_in == "val/loss")):
        lines.append(f"loss {_of_loss(measured.windows.get('loss'), lead)}, within 100 steps")
    lines.append(
        "if that does not come, undo the fix before the next one: two changes at once tell nothing about either"
    )
    return GuideStep(name, question, Answer.NOT_MEASURED, said=tuple(line for line in lines if line))


def _of_evidence(lead: Finding) -> str:
    """What the series that shows the finding should do; nothing where that is the loss."""
    item = next((item for item in lead.evidence if item.tag != "loss" and item.expected is not None), None)
    if item is None or item.expected is None:
        return ""
    return f"{item.tag} comes back to about {amount(item.expected)} (it was {amount(item.value)}), at its next looks"


def _first_sign(path: str, lead: Finding, measured: Measured, seen: Sequence[GuideStep]) -> str:
    """What the series in which the cause shows should do; nothing where that is the loss, or it was not measured."""
    window = measured.windows.get(path)
    if path == "update/ratio":
        usual = next((check for check in measured.checks if check.name == USUAL_RATIO), None)
        low, high = (usual.low, usual.high) if usual is not None else (1e-4, 1e-2)
        return f"update/ratio comes to {amount(low)} to {amount(high)}, the first ten times that it is measured"
    if path == "grad/norm" and window is not None:
        calm = window.max[(window.step < lead.first_step) & (window.finite > 0)]
        limit = (
            f"below {amount(float(calm.max()))}, its highest before step {lead.first_step:,}" if len(calm) else "finite"
        )
        if 0 < len(calm) < _LEVEL:  # it began with the training: what went before was part of it
            limit = f"within ten times its first value, {amount(float(calm[0]))}"
        return f"grad/norm stays {limit}, from the first 10 steps on"
    if path == "grad/rms@" and len(measured.matrices) > 1:
        early, late = measured.matrices[0], measured.matrices[-1]
        return f"grad/rms@{early} comes within 5 times of grad/rms@{late}, at the first look"
    if path == "lr":
        return f"lr stays near its neighbours around step {lead.first_step:,}, where the trouble began"
    if path == "val/loss" and window is not None and (window.finite > 0).any():
        least = amount(float(np.nanmin(window.min)))
        return f"val/loss falls below {least}, its best so far, or turns up later: look at three evaluations"
    for spread in (spread for look in seen for spread in look.spreads if f"{spread.path}@" == path):
        where, value = spread.highest
        return f"{path}{where} falls below 50% (now {share(value)}), at the first three looks"
    return ""


def _of_loss(window: Window | None, lead: Finding) -> str:
    if window is None:
        return "falls (it was not measured: give it to `watch.step(loss)`)"
    if lost := np.flatnonzero(window.nonfinite).tolist():
        return f"stays finite past step {int(window.step[lost[0]]):,} and falls"
    before = window.mean[window.step < lead.first_step][-_LEVEL:]
    if len(before) == _LEVEL:
        return f"comes back to {amount(float(np.median(before)))} or below, its level before step {lead.first_step:,}"
    return f"falls below {amount(float(window.min.min()))}, its lowest so far"
