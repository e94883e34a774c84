"""Reports of real runs: all that is in them, and nothing that a browser would fetch or run."""

import base64
import hashlib
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core.causes import Cause
from sonde.core.findings import Diagnosis, Evidence, Finding, Severity, Suspect
from sonde.core.quantities import number
from sonde.core.remedies import Action, Remedy, Safety
from sonde.reports.charts import Chart
from sonde.reports.document import Card, Code, Document, Figures, Fold, Heading, Paragraph, Strong, Table
from sonde.reports.html import html
from sonde.reports.markdown import markdown
from sonde.reports.report import SECTIONS, report
from sonde.reports.sections.curves import curves
from sonde.reports.sections.findings import findings
from sonde.reports.sections.opening import opening, sentence
from sonde.reports.subject import Subject

ODD = "a|`b`*c*<script>alert(1)</script>&\"'.weight"
_VOID = {"meta", "br"}


class _Page(HTMLParser):
    """What a browser makes of a page: its tags, its text, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _record(folder: Path, losses: list[float], **others: float) -> Path:
    with sonde.record(folder, config={"lr": 0.1, ODD: ODD}) as writer:
        for step, loss in enumerate(losses, 1):
            writer.log({"loss": loss, "lr": 0.1, **others}, step=step)
            if step % 10 == 0:
                sizes = {f"grad/rms@{name}": 1.0 + i for i, name in enumerate(("first.weight", ODD, "last.weight"))}
                writer.log(sizes, step=step, table="gradients")
        writer.event("not-measured", step=1, data={"tag": "act/*", "reason": f"compiled {ODD}"})
    return folder


def _losses(size: int = 300) -> list[float]:
    noise = np.random.default_rng(0).normal(0, 0.02, size)
    return [float(value) for value in 2 / (1 + np.arange(size) / 50) + noise]


def _finding(**changes: object) -> Finding:
    fields: dict[str, object] = {
        "code": "GRD001",
        "name": "exploding-gradients",
        "severity": Severity.CRITICAL,
        "first_step": 184,
        "last_step": 190,
        "open": True,
        "where": (ODD,),
        "message": "gradient norm 417, 38 robust deviations above its last steps",
        "evidence": (Evidence(tag="loss", step=186, value=4.17, expected=2.1),),
        "causes": (
            Suspect(cause=Cause.LR_TOO_HIGH, confidence=0.8, because="the update ratio rose"),
            Suspect(cause=Cause.BAD_BATCH, confidence=0.1, because="one batch stands out"),
        ),
        "remedies": (
            Remedy(
                action=Action.LOWER_LR,
                args={"factor": 0.3},
                safety=Safety.OPT_IN,
                text="lower the learning rate 0.1 → 0.03",
            ),
        ),
    }
    return Finding(**{**fields, **changes})  # type: ignore[arg-type]


def _subject(folder: Path, *found: Finding, steps: int = 300) -> Subject:
    return Subject(run=sonde.load(folder), diagnosis=Diagnosis(run="run", steps=steps, findings=found))


def test_a_page_fetches_nothing_and_closes_every_tag(tmp_path: Path) -> None:
    text = report(_record(tmp_path / "run", _losses())).html()
    page = _Page(text)
    assert not {"img", "link", "iframe", "object", "b"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("href", "src", "style") or name.startswith("on")]
    assert "svg" in page.tags
    assert ODD in page.text


def test_the_only_script_of_a_page_is_the_one_that_its_policy_allows(tmp_path: Path) -> None:
    text = report(_record(tmp_path / "run", _losses())).html()
    (script,) = re.findall("<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [value for name, value in _Page(text).attributes if name == "content" and "default-src" in value]
    assert policy.split("; ")[0] == "default-src 'none'"
    assert f"script-src 'sha256-{digest}'" in policy.split("; ")
    assert ODD not in script


def test_both_forms_have_every_section(tmp_path: Path) -> None:
    told = report(_record(tmp_path / "run", _losses()))
    for text in (told.html(), told.markdown()):
        for heading in (
            "Health checklist",
            "Forecast",
            "The course of the training",
            "Layers at a glance",
            "Not measured",
            "Configuration and environment",
        ):
            assert heading in text
        assert "The training is healthy." in text
        assert "compiled" in text


def test_the_verdict_names_what_is_wrong_since_when_and_why(tmp_path: Path) -> None:
    folder = _record(tmp_path / "run", _losses())
    said = sentence(_subject(folder, _finding()))
    assert said == (
        "Something is wrong since step 184: exploding gradients, most likely because the learning rate is too high."
    )
    over = _finding(open=False, causes=(Suspect(cause=Cause.BAD_BATCH, confidence=0.3, because="it stands out"),))
    assert sentence(_subject(folder, over)) == (
        "There was trouble at steps 184 to 190, which is over: exploding gradients, "
        "possibly because one batch is unlike the others."
    )
    assert "since step 9" in sentence(_subject(folder, over, _finding(first_step=9)))


def test_a_finding_is_told_with_picture_evidence_causes_and_remedies(tmp_path: Path) -> None:
    blocks = findings(_subject(_record(tmp_path / "run", _losses()), _finding()))
    document = Document("title", "subtitle", blocks)
    for text in (_Page(html(document)).text, markdown(document)):
        assert "begins: step 184" in text
        assert "expected 2.1" in text
        assert "80% sure" in text
        assert "0.1 → 0.03" in text
        assert "opt-in" in text
        assert "sonde explain explosion" in text
        assert "When it is wrong" in text  # of the manual page
        assert text.index("The learning rate is too high") < text.index("One batch is unlike the others")


def test_information_is_folded_and_told_once_a_kind(tmp_path: Path) -> None:
    found = [
        _finding(severity=Severity.INFO, first_step=step, last_step=step + 5, open=step == 100) for step in (0, 50, 100)
    ]
    blocks = findings(_subject(_record(tmp_path / "run", _losses()), *found))
    (fold,) = [block for block in blocks if isinstance(block, Fold)]
    assert fold.summary[-1] == ", since step 100 (3 times in all)"
    text = markdown(Document("title", "subtitle", blocks))
    assert "other times as well: steps 50 to 55, over; steps 0 to 5, over." in text


def test_alarms_of_one_cause_are_one_card_in_which_three_kinds_are_open_and_the_others_folded(tmp_path: Path) -> None:
    folder = _record(tmp_path / "run", _losses())
    found = [_finding(code=f"GRD00{i}", first_step=step) for i in range(1, 6) for step in (20, 150)]
    heading, card = findings(_subject(folder, *found))
    assert isinstance(heading, Heading)
    assert isinstance(card, Card)
    folded = [block for block in card.blocks if isinstance(block, Fold) and "times in all" in str(block.summary[-1])]
    assert len(folded) == 2
    text = markdown(Document("title", "subtitle", (card,)))
    assert text.count("Lower the learning rate") == 1
    assert text.count("80% sure") == 1


def test_another_cause_is_another_card(tmp_path: Path) -> None:
    leak = (Suspect(cause=Cause.MEMORY_LEAK, confidence=0.9, because="memory grows"),)
    found = _finding(), _finding(code="SYS004", causes=leak, severity=Severity.WARNING)
    blocks = findings(_subject(_record(tmp_path / "run", _losses()), *found))
    assert [block.kind for block in blocks if isinstance(block, Card)] == ["critical", "warning"]


def test_of_what_is_no_alarm_neither_causes_nor_remedies_are_told(tmp_path: Path) -> None:
    blocks = findings(_subject(_record(tmp_path / "run", _losses()), _finding(severity=Severity.INFO)))
    text = markdown(Document("title", "subtitle", blocks))
    assert "Gradient norm 417" in text
    assert "% sure" not in text
    assert "lower the learning rate" not in text.lower()


def test_the_verdict_is_in_the_words_of_the_diagnosis(tmp_path: Path) -> None:
    folder = _record(tmp_path / "run", _losses())
    for subject in (_subject(folder), _subject(folder, _finding(severity=Severity.INFO)), _subject(folder, _finding())):
        text = markdown(Document("title", "subtitle", opening(subject)))
        assert f"Verdict: **{subject.diagnosis.verdict.words}**." in text


def test_losses_that_are_not_finite_are_marked_and_told(tmp_path: Path) -> None:
    losses = [*_losses(200), *[math.nan] * 50]
    told = report(_record(tmp_path / "run", losses))
    assert "Since step 201 it is NaN or infinite." in told.markdown()
    assert "NaN or infinite" in told.html()
    assert "×" in told.markdown()
    assert told.verdict.startswith("Something is wrong")


def test_an_empty_run_says_that_nothing_was_recorded(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run"):
        pass
    told = report(tmp_path / "run")
    assert str(told) == "There is not enough to judge: nothing was recorded."
    assert "not enough to judge" in _Page(told.html()).text


@pytest.mark.parametrize("tags", [("loss",), ("val/loss",), ("accuracy",), ("grad/norm@a", "grad/rms@a")])
def test_a_run_of_a_few_series_is_told(tmp_path: Path, tags: tuple[str, ...]) -> None:
    with sonde.record(tmp_path / "run") as writer:
        for step in range(4):
            writer.log(dict.fromkeys(tags, 1.0 / (1 + step)), step=step)
    told = report(tmp_path / "run")
    _Page(told.html())
    assert told.markdown().startswith("# Training report")
    assert "few to judge by" in told.verdict or "not enough to judge" in told.verdict


def test_a_run_that_is_still_being_written_is_told(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        for step, loss in enumerate(_losses(100), 1):
            writer.log({"loss": loss}, step=step)
        assert writer.flush()
        assert str(report(tmp_path / "run")) == "The training is healthy so far."


def test_a_long_run_becomes_a_small_file(tmp_path: Path) -> None:
    def length(size: int) -> int:
        subject = _subject(_record(tmp_path / str(size), _losses(size)), _finding(), steps=size)
        return len(html(Document("title", "subtitle", tuple(block for part in SECTIONS for block in part(subject)))))

    assert length(20_000) < 2 * length(1_000)


def test_the_target_is_told_in_the_forecast(tmp_path: Path) -> None:
    steps = np.arange(1, 1001)
    losses = 1.0 + 2.0 * steps**-0.5 + np.random.default_rng(0).normal(0, 0.01, 1000)
    told = report(_record(tmp_path / "run", losses.tolist()), target=1.05, rules=())
    assert "Until it reaches the target 1.05" in told.markdown()


def test_a_file_is_saved_by_its_ending(tmp_path: Path) -> None:
    told = report(_record(tmp_path / "run", _losses(30)))
    assert told.save(tmp_path / "a.html").read_text(encoding="utf-8") == told.html()
    assert told.save(tmp_path / "a.MD").read_text(encoding="utf-8") == told.markdown()
    with pytest.raises(ValueError, match=r"\.html, \.htm, \.md"):
        told.save(tmp_path / "a.pdf")


def test_reports_need_no_torch(tmp_path: Path) -> None:
    folder = _record(tmp_path / "run", _losses(30))
    code = "import sys, sonde; sonde.report(sys.argv[1]).html(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


def test_markdown_shows_odd_names_as_they_are() -> None:
    rows = (((Code("a|b`c"),), ("x|y *z* <i>",)),)
    text = markdown(Document("t", "s", (Table(("Name", "Value"), rows), Paragraph((Strong(" bold: "), "rest")))))
    assert "| `` a\\|b`c `` | x\\|y \\*z\\* \\<i\\> |" in text
    assert " **bold:** rest" in text


def test_the_loss_began_at_its_first_value_however_far_it_rose_at_once(tmp_path: Path) -> None:
    steps = np.arange(2000)
    losses = np.where(steps == 0, 2.4, 2.303 + 600 * np.exp(-steps / 15))
    said = report(_record(tmp_path / "run", losses.tolist()), rules=()).markdown()
    assert "fell from 2.4 to 2.303" in said
    assert "In between it had risen to" in said
    told = report(_record(tmp_path / "calm", [math.nan, *_losses(300)]), rules=()).markdown()
    assert f"fell from {number(_losses(300)[0])} to" in told
    assert "In between" not in told


@pytest.mark.parametrize(
    ("value", "text"), [(0.31, "+31%"), (0.1004, "more than +10%"), (-0.1004, "less than -10%"), (0.0996, "+10%")]
)
def test_a_number_that_is_rounded_to_the_end_of_its_range_says_on_which_side_it_is(
    tmp_path: Path, value: float, text: str
) -> None:
    path = tmp_path / "run"
    with sonde.record(path) as writer:
        for step in range(1, 201):
            writer.log({"loss": 1 / step, "time/step": 1.0 if step <= 160 else 1 + value}, step=step)
    (line,) = [one for one in report(path, rules=()).markdown().splitlines() if "time a step takes" in one]
    assert f"| {text} |" in line
    assert "-10% to +10%" in line
    assert ("not ok" in line) == (abs(value) > 0.1)


def test_of_all_series_only_the_users_own_are_drawn_as_metrics(tmp_path: Path) -> None:
    listed = Path(__file__).parents[2].joinpath("docs/how-to/read-the-series.md").read_text(encoding="utf-8")
    families = {found for found in re.findall(r"^\| `([a-z_]+)/", listed, flags=re.MULTILINE) if found != "val"}
    assert len(families) > 20
    with sonde.record(tmp_path / "run") as writer:
        for step in range(30):
            values = {f"{family}/made_up": 1.0 + step for family in families}
            writer.log({"loss": 1.0, **values, "accuracy": 0.5, "val/accuracy": 0.5}, step=step)
    drawn = {
        chart.y_label
        for block in curves(_subject(tmp_path / "run", steps=30))
        if isinstance(block, Figures)
        for figure in block.figures
        if isinstance(chart := figure.picture, Chart)
    }
    assert drawn == {"Loss", "accuracy", "val/accuracy"}
