"""A run whose every text is hostile, told by each command: nothing steers the terminal, nothing is a link or a tag."""

import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import sonde
from sonde.core.causes import Cause
from sonde.core.findings import Diagnosis, Evidence, Finding, Severity, Suspect
from sonde.core.printable import is_printable
from sonde.core.remedies import Action, Remedy, Safety

Call = Callable[..., subprocess.CompletedProcess[str]]

MARKS = (
    "[red]r[/red][link=http://e.vil]l[/link] ` `` ``` | [a](http://e.vil) ![i](http://e.vil/x) <http://e.vil> "
    "<img src=http://e.vil onerror=alert(1)> <script>alert(1)</script> '\" onload='x &lt;b&gt; http://e.vil www.e.vil"
)
HOSTILE = f"x\x1b[31m\x1b]0;t\x07\x9b2J\x7f\r\n- y\n# z\u202e\u2066\u2028 {MARKS} \ud800"
NAME = "\x1b[2J\u202e`[a](b)<i>\n"
WHERE = f"layer\u202e.{MARKS}"  # what a tag may hold


def finding(code: str, name: str) -> Finding:
    return Finding(
        code=code,
        name=name,
        severity=Severity.CRITICAL,
        first_step=3,
        last_step=9,
        open=True,
        where=(HOSTILE, HOSTILE),
        message=HOSTILE,
        evidence=(Evidence(tag=f"grad/norm@{WHERE}", step=3, value=1.0),),
        causes=(Suspect(cause=Cause.LR_TOO_HIGH, confidence=0.8, because=HOSTILE),),
        remedies=(Remedy(action=Action.LOWER_LR, args={HOSTILE: HOSTILE}, safety=Safety.ADVICE, text=HOSTILE),),
    )


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs."""
    folder = tmp_path_factory.mktemp("hostile")
    for run, name in (("one", NAME), ("two", f"{NAME}2")):
        config = {HOSTILE: HOSTILE, "list": [HOSTILE], "same": run + HOSTILE}
        with sonde.record(folder / run, config=config) as writer:
            for step in range(1, 61):
                values = {"loss": float("nan") if step > 40 else 1.0 / step, f"grad/norm@{WHERE}": float(step)}
                values[f"grad/rms@{WHERE}"] = 1e9 if step > 30 else 1.0
                writer.log(values, step=step)
            writer.event("note", step=3, data={HOSTILE: HOSTILE})
            writer.event(HOSTILE, data={"a": HOSTILE})
            writer.event("not-measured", data={"tag": HOSTILE, "reason": HOSTILE})
            writer.event("finding", step=3, data=finding("GRD001", "exploding-gradients").to_json())
            writer.event("monitor-problem", data={"reason": HOSTILE})
        for file, told in (
            ("run.json", {"name": HOSTILE, "environment": {HOSTILE: HOSTILE, "command": [HOSTILE, HOSTILE]}}),
            ("state.json", {"reason": HOSTILE, "ending": "crashed", "dropped": {HOSTILE: 3}}),
        ):
            path = folder / run / file
            said = json.loads(path.read_text())
            if file == "run.json":
                told["settings"] = {HOSTILE: {"value": HOSTILE, "from": HOSTILE}}
                told["model"] = {"parameters": [{"name": HOSTILE, "shape": [2]}]}
            path.write_text(json.dumps({**said, **told}))
        (folder / run).rename(folder / name)
    return folder


def harmless(text: str) -> bool:
    return all(is_printable(line) for line in text.split("\n"))


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "DIR"],
        ["runs", "DIR", "--json"],
        ["show", "ONE"],
        ["show", "ONE", "--json"],
        ["tail", "ONE", "--once"],
        ["tail", "ONE", "--once", "--lines"],
        ["diagnose", "ONE", "--all"],
        ["diagnose", "ONE", "--json"],
        ["diagnose", "ONE", "--guide"],
        ["diagnose", "ONE", "--guide", "--json"],
        ["compare", "ONE", "TWO"],
        ["compare", "ONE", "TWO", "--json"],
        ["report", "ONE", "--md", "-o", "-"],
        ["report", "ONE", "--html", "-o", "-"],
        ["config", "ONE"],
        ["config", "ONE", "--json"],
        ["calibrate", "ONE"],
        ["export", "ONE", "--to", "parquet"],
        ["show", HOSTILE],
        ["explain", HOSTILE],
        ["export", "ONE", "--to", "csv", "--tags", HOSTILE],
        ["import", "csv", HOSTILE],
        [HOSTILE],
    ],
    ids=lambda words: ascii(" ".join(words)[:40]),
)
def test_no_command_lets_a_text_steer_the_terminal(
    call: Call, hostile: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"DIR": hostile, "ONE": hostile / NAME, "TWO": hostile / f"{NAME}2"}
    outcome = call(*(places.get(word, word) for word in words))
    assert outcome.returncode in (0, 1, 2)
    assert outcome.stdout or outcome.stderr
    assert harmless(outcome.stdout)
    assert harmless(outcome.stderr)
    if words[0] in ("show", "tail") and words[1] == "ONE" and "--json" not in words:
        assert r"\x1b[" in outcome.stdout + outcome.stderr  # shown, not swallowed


def test_a_finding_and_a_diagnosis_are_harmless_when_they_are_printed() -> None:
    found = finding("GRD001", "exploding-gradients")
    text = str(Diagnosis(run=HOSTILE, steps=3, findings=(found,), not_measured=(HOSTILE,)))
    assert harmless(text)
    head, *body = text.splitlines()
    assert head.startswith("critical: lr-too-high (confidence 0.8), since step 3, seen in `x")
    inside, empty, *about = itertools.dropwhile(lambda line: not line.startswith("  more: "), body)
    assert all(line.startswith("  ") for line in body[: body.index(inside)])
    assert (empty, [line.partition(":")[0].split()[0] for line in about]) == (
        "",
        ["x\\x1b[31m\\x1b]0;t\\x07\\x9b2J\\x7f", "not"],
    )


def tokens(some: Sequence[Token]) -> Iterator[Token]:
    for token in some:
        yield token
        yield from tokens(token.children or ())


def test_texts_in_markdown_are_text(call: Call, hostile: Path) -> None:
    text = call("report", hostile / NAME, "--md", "-o", "-").stdout
    found = list(tokens(MarkdownIt("commonmark").enable("table").parse(text)))
    kinds = {token.type for token in found}
    assert {"table_open", "code_inline", "html_block"} <= kinds
    assert not kinds & {"link_open", "image", "html_inline"}
    pages = "".join(token.content for token in found if token.type == "html_block")
    assert set(re.findall(r"<\s*/?\s*(\w+)", pages)) <= {"details", "summary", "b"}
    told = [token.content for token in found if token.type == "code_inline"]
    assert any("![i](http://e.vil/x)" in content and "` `` ```" in content for content in told)
    assert not re.search(
        r"(?<!\\)://|(?<!\\)www\.", "".join(t.content for t in found if t.type == "inline" and "`" not in t.content)
    )


class Page(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs


@pytest.mark.parametrize("words", [["report", "ONE", "--html", "-o"], ["compare", "ONE", "TWO", "--html"]], ids=str)
def test_texts_in_html_are_text(call: Call, hostile: Path, tmp_path: Path, words: list[str]) -> None:
    places = {"ONE": hostile / NAME, "TWO": hostile / f"{NAME}2"}
    call(*(places.get(word, word) for word in words), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert harmless(text)
    assert not page.names & {"img", "i", "a", "iframe", "link", "base", "form"}
    assert re.findall("<script.{30}", text, flags=re.DOTALL) == ["<script>// Shows the values of a char"]  # ours
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href", "srcset")]
    for picture in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        ElementTree.fromstring(picture)
