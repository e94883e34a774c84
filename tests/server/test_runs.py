"""The table of runs and the page of one: what is told, and that it is told of whatever lies in the folder."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.server.answers import Ask
from tests.server.conftest import JUDGED, LAYERS, SPIKE, STEPS

import sonde
from sonde.core.strict_json import dumps
from sonde.store.writer import Writer


def by_id(ask: Ask, **params: Any) -> dict[str, Any]:
    return {line["id"]: line for line in ask.json("runs", **params)["runs"]}


def until(ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """What is answered as soon as it is as wanted."""
    end = time.monotonic() + 60
    while not holds(found := ask()):
        assert time.monotonic() < end, found
    return found


def test_every_run_is_a_line_with_what_its_files_say(ask: Ask) -> None:
    answer = ask.json("runs")
    lines = {line["id"]: line for line in answer["runs"]}
    assert set(lines) == {"good", "deep/er/plain", "damaged"}
    assert (answer["schema"], answer["total"], answer["pending"]) == (1, 3, 0)
    good = lines["good"]
    assert (good["state"], good["ending"], good["steps"], good["problem"]) == ("ended", "finished", STEPS, None)
    assert (good["verdict"], good["alarms"]) == ("warning", {"warning": 1, "critical": 0})
    assert good["config"] == {
        "lr": 0.1,
        "model.width": 8,
        "model.sizes": "[1, 2]",
        "note": "<script>alert(1)</script>",
    }
    assert 10 <= len(good["spark"]) <= 40
    assert (good["lr"], good["step_s"]) == (1.0, 0.25)
    assert good["loss"] == pytest.approx(4 / STEPS**0.5, rel=0.2)


def test_a_damaged_run_is_a_line_with_its_problem(ask: Ask) -> None:
    line = by_id(ask)["damaged"]
    assert (line["state"], line["verdict"]) == ("unreadable", "unknown")
    assert "damaged" in line["problem"]
    told = ask.run("damaged")
    assert told["problem"] == line["problem"]
    assert told["findings"] == []
    for path in ("/tags", "/series", "/layers", "/layer-paths", "/events"):
        answer = ask.client.get(f"/api/runs/damaged{path}", params={"tag": "loss", "path": "grad/rms"})
        assert answer.status_code == 404
        assert "damaged" in answer.json()["error"]["what"]


def test_a_run_that_nobody_judged_is_unknown_until_its_replay(ask: Ask) -> None:
    assert by_id(ask)["deep/er/plain"]["verdict"] == "unknown"
    first = ask.run("deep/er/plain")
    assert first["diagnosis"] in ("working", "replayed")
    told = until(lambda: ask.run("deep/er/plain"), lambda told: told["diagnosis"] != "working")
    assert told["diagnosis"] == "replayed", told["problems"]
    found = sonde.diagnose(Path(ask.json("runs")["folder"], "deep/er/plain"))
    assert [one["code"] for one in told["findings"]] == [finding.code for finding in found]
    assert told["not_measured"] == list(found.not_measured)
    assert told["verdict"] == found.verdict
    assert by_id(ask)["deep/er/plain"]["verdict"] == found.verdict


def test_a_run_is_told_with_its_findings_model_and_schedule(ask: Ask) -> None:
    told = ask.run("good")
    assert told["diagnosis"] == "recorded"
    (finding,) = told["findings"]
    assert (finding["id"], finding["open"], finding["last_step"], finding["muted"]) == ("LOS002@700", False, 800, False)
    assert finding["tier"] == "stable"
    assert finding["precision"]["right"] <= finding["precision"]["alarms"]
    assert {**SPIKE.to_json(), "open": False, "last_step": 800}.items() <= finding.items()
    (group,) = told["groups"]
    assert (group["cause"], group["findings"]) == ("lr-spike", [0])
    assert told["not_measured"] == ["attn/*: there is no attention"]
    assert [row["name"] for row in told["model"]["parameters"]] == LAYERS
    assert [phase["phase"] for phase in told["schedule"]] == ["warmup", "constant"]
    assert 480 <= told["schedule"][0]["to"] <= 520
    assert told["evaluations"] == [500, 1000, 1500, 2000, 2500, 3000]
    assert told["num_tags"] == 3 + 1 + len(LAYERS)
    assert (told["ranks"], told["problems"]) == ([0], [])
    assert told["branches"] == [{"number": 0, "parent": None, "fork_step": 0}]


def test_order_and_pages(serve: Callable[..., Ask], tmp_path: Path) -> None:
    for number, name in enumerate("cab"):
        with Writer(tmp_path / name, settings=JUDGED) as writer:
            for step in range(10 * (number + 1)):
                writer.log({"loss": [3.0, float("nan"), 1.0][number]}, step=step)
    ask = serve(tmp_path)

    def order(**params: Any) -> list[str]:
        return [line["id"] for line in ask.json("runs", **params)["runs"]]

    assert order(sort="name") == ["a", "b", "c"]
    assert order(sort="steps") == ["b", "a", "c"]
    assert order(sort="loss") == ["b", "c", "a"]
    assert order() == order(sort="created") == ["b", "a", "c"]
    assert order(sort="name", offset=1, limit=1) == ["b"]
    assert ask.json("runs", offset=7)["runs"] == []


def test_runs_appear_while_they_are_born_and_vanish_with_their_folder(
    serve: Callable[..., Ask], tmp_path: Path
) -> None:
    ask = serve(tmp_path / "not-there-yet")
    assert ask.json("runs")["runs"] == []
    with Writer(tmp_path / "not-there-yet" / "one", settings=JUDGED) as writer:
        assert by_id(ask)["one"]["state"] == "running"
        writer.log({"loss": 1.0}, step=1)
        writer.flush()
        assert by_id(ask)["one"]["loss"] == 1.0
        assert ask.run("one")["diagnosis"] == "recorded"
    assert by_id(ask)["one"]["state"] == "ended"
    shutil.rmtree(tmp_path / "not-there-yet" / "one")
    assert ask.json("runs") == {
        "schema": 1,
        "folder": str(tmp_path / "not-there-yet"),
        "total": 0,
        "pending": 0,
        "runs": [],
    }
    assert ask.client.get("/api/runs/one").status_code == 404


def test_a_run_whose_process_is_gone_has_died(serve: Callable[..., Ask], tmp_path: Path) -> None:
    with sonde.record(tmp_path / "one") as writer:
        writer.log({"loss": 1.0}, step=1)
    state = json.loads((tmp_path / "one" / "state.json").read_text())
    (tmp_path / "one" / "state.json").write_text(dumps({**state, "ending": "live"}))
    assert by_id(serve(tmp_path))["one"]["state"] == "died"


def test_a_folder_that_is_a_run_has_its_name_as_id(serve: Callable[..., Ask], runs: Path) -> None:
    ask = serve(runs / "good")
    assert list(by_id(ask)) == ["good"]
    assert ask.run("good")["steps"] == STEPS
    assert ask.client.get("/api/runs/damaged").status_code == 404
    assert ask.client.get("/api/runs/deep%2Fer%2Fplain").status_code == 404


@pytest.mark.parametrize("name", ["a b", "ü–×", "100%", "%2e%2e", "a%2Fb", "q?x=1&y#z", "<b>'\"", "\\..\\x", "~", "-"])
def test_every_name_of_a_folder_is_an_id(serve: Callable[..., Ask], tmp_path: Path, name: str) -> None:
    with sonde.record(tmp_path / "in" / name, name="told otherwise") as writer:
        writer.log({"loss": 0.5}, step=1)
    ask = serve(tmp_path)
    (line,) = ask.json("runs")["runs"]
    assert (line["id"], line["name"]) == (f"in/{name}", "told otherwise")
    assert ask.run(line["id"])["loss"] == 0.5
    assert ask.run(line["id"], "/tags")["tags"] == ["loss"]


def test_a_name_that_is_no_text_is_an_id_too(serve: Callable[..., Ask], tmp_path: Path) -> None:
    with sonde.record(tmp_path / "plain") as writer:
        writer.log({"loss": 0.5}, step=1)
    try:
        (tmp_path / "plain").rename(tmp_path / b"caf\xe9%41".decode(errors="surrogateescape"))
    except OSError:
        pytest.skip("this file system takes no such names")
    ask = serve(tmp_path)
    (line,) = ask.json("runs")["runs"]
    assert line["id"] == "caf%E9%41"
    assert ask.run(line["id"], "/tags")["tags"] == ["loss"]


def test_tags_and_events(ask: Ask) -> None:
    assert ask.run("good", "/tags", pattern="grad/*")["tags"] == [f"grad/rms@{name}" for name in sorted(LAYERS)]
    assert ask.run("good", "/tags", limit=2) == {
        "schema": 1,
        "tags": ["grad/rms@" + sorted(LAYERS)[0], "grad/rms@" + sorted(LAYERS)[1]],
        "total": 8,
    }
    assert ask.run("good", "/histogram-tags")["tags"] == ["grad/histogram@head.weight"]
    told = ask.run("good", "/events")["events"]
    assert [event["kind"] for event in told] == ["not-measured", "finding", "finding-closed"]
    assert [event["kind"] for event in ask.run("good", "/events", limit=1)["events"]] == ["finding-closed"]
    (event,) = ask.run("good", "/events", kind="finding")["events"]
    assert event["data"] == SPIKE.to_json()


def test_the_page_of_a_rule(ask: Ask) -> None:
    told = ask.json("rules/LOS002")
    assert (told["name"], told["tier"]) == ("loss-spike", "stable")
    assert "## When it is wrong" in told["page"]
    assert told["guide"].startswith("# ")
    assert ask.client.get("/api/rules/XXX999").status_code == 404


def test_runs_are_compared_as_the_command_does(ask: Ask, runs: Path) -> None:
    told = ask.json("compare", run=["good", "deep/er/plain"])
    expected = sonde.compare(runs / "good", runs / "deep" / "er" / "plain").to_json()
    assert {**told, "runs": []} == json.loads(dumps({**expected, "runs": []}))
    assert [run["label"] for run in told["runs"]] == [run["label"] for run in expected["runs"]]
    assert ask.client.get("/api/compare", params={"run": "good"}).status_code == 400
    answer = ask.client.get("/api/compare", params={"run": ["good", "deep/er/plain"], "tag": "nothing"})
    assert answer.status_code == 404


def test_ranks_of_a_run_are_asked_for_like_runs(serve: Callable[..., Ask], tmp_path: Path) -> None:
    for path in (tmp_path / "all", tmp_path / "all" / "ranks" / "1"):
        with sonde.record(path) as writer:
            writer.log({"loss": float(path.name == "1")}, step=1)
    ask = serve(tmp_path)
    assert list(by_id(ask)) == ["all"]
    assert ask.run("all")["ranks"] == [0, 1]
    assert ask.run("all/ranks/1")["loss"] == 1.0
