"""The seven looks at a run on disk."""

from sonde.diagnosis.guide import guide
from sonde.diagnosis.looks import WHOLE, GuideStep, Measured
from sonde.reports.pictures import window
from sonde.reports.sections.checks import answers
from sonde.reports.subject import Subject
from sonde.rules.layer_kinds import Kinds

_POINTS = 2_000  # shorter runs are gone through step by step


def guided(subject: Subject) -> tuple[GuideStep, ...]:
    """What each look shows in a run; costs what it shows, whatever the length of the run."""
    models = [tag.partition("@")[2] for tag in subject.last if tag.startswith("grad/norm_applied@")]
    tags = [*WHOLE, *(f"{tag}@{model}" for tag in WHOLE for model in models)]
    tags += [tag for tag in subject.last if tag.startswith("loss/part@") and tag not in tags]
    windows = {
        tag: found
        for tag in tags
        if subject.has(tag) and (found := window(subject.run, tag, points=_POINTS)) is not None
    }
    names = tuple(tag.removeprefix("grad/rms@") for tag in subject.last if tag.startswith("grad/rms@"))
    matrices, _ = Kinds(subject.run.model).matrices(names)
    return guide(Measured(windows, subject.last, answers(subject), matrices), subject.diagnosis)
