"""Answers are compressed, and not sent twice."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.server.answers import Ask, unpacked
from tests.server.test_security import raw

import sonde
from sonde.server import page

TARGETS = ["/api/runs", "/api/runs/good", "/api/runs/good/series?tag=loss", "/openapi.json", "/api/rules/LOS002"]


@pytest.mark.parametrize("target", TARGETS)
def test_what_has_not_changed_is_not_sent_again(ask: Ask, target: str) -> None:
    _, headers, body = raw(ask, target)
    assert len(body) == int(headers["content-length"])
    status, again, empty = raw(ask, target, if_none_match=headers["etag"])
    assert (status, empty, again["etag"]) == (304, b"", headers["etag"])
    status, _, full = raw(ask, target, if_none_match='W/"another"')
    assert (status, full) == (200, body)


@pytest.mark.parametrize("target", TARGETS)
def test_answers_are_compressed_for_who_takes_it(ask: Ask, target: str) -> None:
    _, plain, body = raw(ask, target)
    _, packed, zipped = raw(ask, target, accept_encoding="br, gzip")
    assert "content-encoding" not in plain
    assert packed["content-encoding"] == "gzip"
    assert packed["vary"] == "accept-encoding"
    assert gzip.decompress(zipped) == body
    assert len(zipped) < len(body)
    assert packed["etag"] == plain["etag"]


def test_a_change_is_another_answer(serve: Callable[..., Ask], tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"loss": 1.0}, step=1)
    ask = serve(tmp_path)
    targets = ("/api/runs", "/api/runs/run", "/api/runs/run/series?tag=loss")
    before = [raw(ask, target)[1]["etag"] for target in targets]
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"loss": 0.5}, step=2)
    for target, tag in zip(targets, before, strict=True):
        status, _, body = raw(ask, target, if_none_match=tag)
        assert status == 200
        assert body
    assert unpacked(raw(ask, targets[2])[2]).series()["mean"].tolist() == [1.0, 0.5]


def test_where_no_page_is_built_it_says_so(ask: Ask) -> None:
    answer = ask.client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    if page.index().content.startswith(
        b'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Sonde</title></head>'
    ):
        assert "The page is not built" in answer.text
    assert answer.content == page.index().content


def test_what_is_not_there_says_so_in_the_same_form(ask: Ask) -> None:
    answer = ask.client.get("/api/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"].keys() == {"what", "allowed", "do"}


def test_everything_is_listed(ask: Ask) -> None:
    told = ask.client.get("/openapi.json").json()
    assert set(told["paths"]) == {
        "/api/runs",
        "/api/runs/{run}",
        "/api/runs/{run}/tags",
        "/api/runs/{run}/series",
        "/api/runs/{run}/layers",
        "/api/runs/{run}/layer-paths",
        "/api/runs/{run}/histograms",
        "/api/runs/{run}/histogram-tags",
        "/api/runs/{run}/events",
        "/api/runs/{run}/notes",
        "/api/compare",
        "/api/rules/{code}",
        "/api/live",
    }
