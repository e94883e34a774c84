"""What a run, a diagnosis and a report show of themselves, at a prompt and in a notebook."""

import math
import re
import subprocess
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sonde
from sonde.core.findings import Diagnosis, Finding, Severity

NASTY = '<script>alert("1")</script><img src=x onerror=alert(2)>'
ALLOWED = {"div", "strong", "table", "tr", "td", "svg", "path", "span", "details", "summary", "pre", "iframe"}


class Tags(HTMLParser):
    """The elements and attributes of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag != "path":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag or tag == "path"

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append(tag)
        self.attributes += [name for name, _ in attrs]


def recorded(run: Path, *, steps: int = 300, broken: bool = True, config: Mapping[str, Any] | None = None) -> sonde.Run:
    with sonde.record(run, config=config) as writer:
        for step in range(1, steps + 1):
            loss = 2 / (1 + step / 50) + 0.01 * math.sin(step) + (8.0 if broken and step == 250 else 0.0)
            writer.log({"loss": loss, "lr": 1e-3}, step=step)
    return sonde.load(run)


def test_a_run_says_what_it_is(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", steps=1200)
    said = re.escape(str(tmp_path / "run"))
    assert re.fullmatch(rf"Run\('{said}': finished, 1,200 steps, loss 0\.\d+\)", repr(run))
    shown = run._repr_html_()
    assert "1,200 steps" in shown
    assert "<svg" in shown


def test_an_empty_run_a_damaged_one_and_one_that_is_gone_say_so(tmp_path: Path) -> None:
    sonde.record(tmp_path / "empty").close()
    run = sonde.load(tmp_path / "empty")
    assert "0 steps" in repr(run)
    assert "<svg" not in run._repr_html_()
    (tmp_path / "empty" / "run.json").write_text("{")
    assert "is damaged" in repr(run)
    assert "is damaged" in run._repr_html_()
    (tmp_path / "empty" / "run.json").unlink()
    assert "is not a run" in repr(run)


def test_a_run_whose_losses_are_all_nan_has_no_curve_and_says_nan(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        for step in range(5):
            writer.log({"loss": math.nan}, step=step)
    run = sonde.load(tmp_path / "run")
    assert "loss nan" in repr(run)
    assert "<svg" not in run._repr_html_()


def test_nothing_of_a_run_becomes_an_element(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run", name=NASTY, config={NASTY: NASTY, "list": [NASTY]}) as writer:
        for step in range(200):
            writer.log({"loss": 1.0 if step < 150 else math.nan, f"grad/norm@{NASTY}": 1.0}, step=step)
    run = sonde.load(tmp_path / "run")
    diagnosis = sonde.diagnose(run)
    assert diagnosis
    for shown in (run._repr_html_(), diagnosis._repr_html_(), sonde.report(run)._repr_html_()):
        found = Tags(shown)
        assert set(found.elements) <= ALLOWED
        assert not [name for name in found.attributes if name.startswith("on") or name in ("src", "href")]
        assert found.open == []


def test_a_diagnosis_is_a_sequence_of_its_findings(tmp_path: Path) -> None:
    diagnosis = sonde.diagnose(recorded(tmp_path / "run"))
    assert len(diagnosis) == len(list(diagnosis)) == len(diagnosis.findings) > 0
    assert diagnosis[0] is diagnosis.findings[0]
    assert diagnosis[-1] is diagnosis.findings[-1]
    assert diagnosis[:1] == diagnosis.findings[:1]
    assert diagnosis
    with pytest.raises(IndexError):
        diagnosis[len(diagnosis)]
    assert "LOS002" in repr(diagnosis)
    assert "\n" not in repr(diagnosis)
    shown = diagnosis._repr_html_()
    assert "LOS002 loss-spike" in shown
    assert "<details" in shown


def test_a_diagnosis_without_findings_is_empty_and_false() -> None:
    empty = Diagnosis(run="runs/demo", steps=500, not_measured=("activations",))
    assert len(empty) == 0
    assert not empty
    assert repr(empty) == "Diagnosis(run='runs/demo', verdict='healthy', steps=500, findings=[])"
    assert "healthy after 500 steps" in empty._repr_html_()
    assert "activations" in empty._repr_html_()


def test_notes_are_told_in_a_notebook_too() -> None:
    note = Finding(
        code="ABC001",
        name="a-note",
        severity=Severity.INFO,
        first_step=1,
        last_step=2,
        open=True,
        message="worth knowing",
    )
    assert "ABC001 a-note: worth knowing" in Diagnosis(run="r", steps=3, findings=(note,))._repr_html_()


def test_a_report_is_its_verdict_at_a_prompt_and_its_page_in_a_notebook(tmp_path: Path) -> None:
    report = sonde.report(recorded(tmp_path / "run"))
    assert repr(report) == f"Report('Training report: run': {report.verdict!r})"
    shown = report._repr_html_()
    assert Tags(shown).elements == ["iframe"]
    assert "sandbox" in Tags(shown).attributes
    assert "&lt;!doctype html&gt;" in shown.lower()


# Figures.


def test_a_figure_has_a_panel_for_each_path_and_a_line_for_each_series(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with sonde.record(tmp_path / "run") as writer:
        for step in range(1, 41):
            lost = math.nan if step > 30 else 1 / step
            writer.log({"loss": lost, "grad/norm@a": 1.0 * step, "grad/norm@b": 2.0 * step}, step=step)
    run = sonde.load(tmp_path / "run")
    figure = run.plot(["loss", "grad/norm@a", "grad/norm@b"])
    loss, norms = figure.axes
    assert [axis.get_title(loc="left") for axis in (loss, norms)] == ["loss", "grad/norm"]
    assert [line.get_label() for line in norms.get_lines()] == ["a", "b"]
    curve, marks = loss.get_lines()
    assert np.size(curve.get_xdata()) == 40
    assert np.asarray(marks.get_xdata()).tolist() == list(range(31, 41))  # what has no height
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert len(run.plot("grad/*", start=5, end=10, scale="log").axes) == 1
    with pytest.raises(sonde.core.errors.TagNotFound, match="matches 'act"):
        run.plot("act/*")
    with pytest.raises(sonde.core.errors.TagNotFound, match="'lost'"):
        run.plot(["lost"])


def test_too_many_series_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with sonde.record(tmp_path / "run") as writer:
        writer.log({f"grad/norm@{i}": 1.0 for i in range(201)}, step=1)
    with pytest.raises(ValueError, match="at most 200 series, got 201"):
        sonde.load(tmp_path / "run").plot("grad/norm@*")


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path) -> None:
    recorded(tmp_path / "run", steps=3)
    code = "import sys; sys.modules['matplotlib'] = None; import sonde; sonde.load(sys.argv[1]).plot()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert "pip install 'sonde[plot]'" in done.stderr.splitlines()[-1] or "sonde[plot]" in done.stderr


def test_plotting_leaves_pyplot_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    recorded(tmp_path / "run", steps=3)
    code = "import sys, sonde; sonde.load(sys.argv[1]).plot(); assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=True)
