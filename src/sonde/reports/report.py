"""A run as one file to read, print or send."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sonde.core import fragments
from sonde.reports.diagnosing import diagnose
from sonde.reports.document import Document
from sonde.reports.html import html
from sonde.reports.markdown import markdown
from sonde.reports.sections.checks import checks
from sonde.reports.sections.circumstances import circumstances, gaps, subtitle
from sonde.reports.sections.curves import curves
from sonde.reports.sections.findings import findings
from sonde.reports.sections.forecast import forecast
from sonde.reports.sections.layers import layers
from sonde.reports.sections.model import model
from sonde.reports.sections.opening import opening, sentence
from sonde.reports.subject import Subject
from sonde.rules.rule import Rule
from sonde.store.reader import Run, load

SECTIONS = (opening, findings, checks, forecast, curves, layers, model, gaps, circumstances)
FORMS = {".html": html, ".htm": html, ".md": markdown}


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """A run, told: the verdict first, then the evidence. Printed, it is the verdict in a sentence."""

    verdict: str
    document: Document

    def html(self) -> str:
        """One page that needs nothing else, with pictures; light or dark as the reader's system, and printable."""
        return html(self.document)

    def markdown(self) -> str:
        """The same as Markdown, with curves of block characters."""
        return markdown(self.document)

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write it into a file, replaced if it exists: HTML or Markdown by its ending, `.html` or `.md`."""
        path = Path(file)
        form = FORMS.get(path.suffix.lower())
        if form is None:
            raise ValueError(f"`save(file=...)` must end in {', '.join(FORMS)}, got {path.name!r}.")
        path.write_text(form(self.document), encoding="utf-8", errors="replace")  # the run may be named in no encoding
        return path

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        return f"Report({self.document.title!r}: {self.verdict!r})"

    def _repr_html_(self) -> str:
        """For notebooks: the whole page."""
        return fragments.page(self.html())


def report(
    run: Run | str | os.PathLike[str], *, target: float | None = None, rules: Iterable[Rule] | None = None
) -> Report:
    """A run told to someone who knows neither Sonde nor the model.

    The verdict in a sentence, the numbers that matter, each finding with its picture, evidence, causes and remedies,
    the health checklist, a forecast of the loss, the main curves, the layers at a glance, the model, what was not
    measured, configuration and environment as `run.json` has them. Works on any run: live, dead, empty, or imported
    with a single series. Pictures cost what they show, whatever the length of the run; the diagnosis reads it once.

    Args:
        run: The run, or its folder.
        target: A loss to be reached; the forecast says when it will be.
        rules: Those to apply; all of the catalogue where left out.

    Raises:
        RunNotFound, RunUnreadable: there is no run there.

    Example:
        >>> import tempfile, sonde
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with sonde.record(folder) as writer:
        ...         for step in range(1, 101):
        ...             writer.log({"loss": 1 / step, "lr": 0.1}, step=step)
        ...     told = report(folder)
        >>> print(told)
        The training is healthy, with notes.
        >>> told.markdown().count("## Health checklist")
        1
    """
    opened = run if isinstance(run, Run) else load(run)
    subject = Subject(run=opened, diagnosis=diagnose(opened, rules=rules), target=target)
    blocks = tuple(block for section in SECTIONS for block in section(subject))
    title = f"Training report: {opened.name}"
    return Report(sentence(subject), Document(title, subtitle(subject), blocks))
