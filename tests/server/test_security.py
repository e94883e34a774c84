"""Nobody reads what is not shown, asks who may not, or has the browser run what a run says."""

import http.client
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from tests.server.answers import Ask

import sonde
from sonde.server.security import Access, is_loopback

TOKEN = "a-token-of-our-own"


def raw(
    ask: Ask, target: str, *, method: str = "GET", body: bytes = b"", **headers: str
) -> tuple[int, Mapping[str, str], bytes]:
    """An answer to a request of which no client has tidied the address or the headers."""
    parts = urlsplit(ask.origin)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=20)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        sent = {"host": parts.netloc, **headers}
        if body:
            sent["content-length"] = str(len(body))
        for name, value in sent.items():
            if value:
                connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body or None)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder of one run, beside which there is another that is nobody's business, called `hidden`."""
    for path in (tmp_path / "shown" / "run", tmp_path / "hidden" / "run"):
        with sonde.record(path, config={"where": path.parent.name}) as writer:
            writer.log({"loss": 1.0}, step=1)
    return tmp_path / "shown"


@pytest.mark.parametrize(
    "run",
    [
        "..",
        "../hidden/run",
        "run/../../hidden/run",
        "./run",
        "run/",
        "/run",
        "//run",
        "{hidden}",
        "run/./",
        "..%2Fhidden%2Frun",
        "run\0",
        "run/tables",
        "",
        "a" * 5000,
        "..\\hidden\\run",
    ],
)
@pytest.mark.parametrize("inside", ["", "/tags", "/series?tag=loss", "/events", "/layer-paths"])
def test_no_path_leads_out_of_the_folder(serve: Callable[..., Ask], secret: Path, run: str, inside: str) -> None:
    ask = serve(secret)
    run = run.format(hidden=secret.parent / "hidden" / "run")
    for encoded in (quote(run, safe=""), quote(quote(run, safe=""), safe=""), quote(run)):
        status, _, body = raw(ask, f"/api/runs/{encoded}{inside}")
        assert status in (400, 404)
        assert b'"schema": 1, "error"' in body


def test_links_out_of_the_folder_are_as_if_they_were_not_there(serve: Callable[..., Ask], secret: Path) -> None:
    (secret / "link").symlink_to(secret.parent / "hidden" / "run", target_is_directory=True)
    (secret / "links").symlink_to(secret.parent / "hidden", target_is_directory=True)
    (secret / "loop").symlink_to(secret / "loop")
    ask = serve(secret)
    assert [line["id"] for line in ask.json("runs")["runs"]] == ["run"]
    for run in ("link", "links/run", "loop"):
        assert ask.client.get(f"/api/runs/{quote(run, safe='')}").status_code == 404
        assert ask.note(run, {"kind": "tag", "text": "x"}).status_code == 404
    assert not (secret.parent / "hidden" / "run" / "notes.jsonl").exists()


def test_a_link_inside_of_the_folder_is_another_name(serve: Callable[..., Ask], secret: Path) -> None:
    (secret / "latest").symlink_to("run", target_is_directory=True)
    ask = serve(secret)
    assert ask.run("latest")["steps"] == 1
    assert [line["id"] for line in ask.json("runs")["runs"]] == ["run"]


@pytest.mark.parametrize("name", ["run.json", "state.json", "events.jsonl", "tables", "histograms"])
def test_links_inside_of_a_run_are_not_followed(serve: Callable[..., Ask], secret: Path, name: str) -> None:
    other, own = secret.parent / "hidden" / "run", secret / "run"
    with sonde.record(other) as writer:
        writer.log({"loss": 0.123456789}, step=7)
        writer.event("note", data={"text": "nobody's business"})
    os.system(f"rm -rf {own / name}")  # a file or a folder
    (own / name).symlink_to(other / name)
    ask = serve(secret)
    told = json.dumps([ask.json("runs"), ask.run("run")])
    for path in ("/events", "/tags", "/series?tag=loss", "/histogram-tags"):
        told += ask.client.get(f"/api/runs/run{path}").text
    assert "nobody's business" not in told
    assert "0.1234" not in told
    if name == "run.json":
        assert ask.json("runs")["runs"][0]["problem"]


def test_the_folder_itself_may_be_a_link(serve: Callable[..., Ask], secret: Path) -> None:
    (secret.parent / "mine").symlink_to(secret, target_is_directory=True)
    assert serve(secret.parent / "mine").run("run")["steps"] == 1


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "10.0.0.7",
        "a@localhost",
        "localhost:0x1",
        "localhost/x",
        " ",
        "[::1",
        "localhost:99999999",
    ],
)
def test_a_name_of_somebody_elses_is_refused(ask: Ask, host: str) -> None:
    port = urlsplit(ask.origin).port
    for target in ("/api/runs", "/", "/openapi.json", "/assets/x.js"):
        status, _, body = raw(ask, target, host=host.format(port=port))
        assert status in (400, 403)
        assert b"loss" not in body


def test_a_request_without_a_name_is_refused(ask: Ask) -> None:
    assert raw(ask, "/api/runs", host="")[0] in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8321", "LocalHost:80", "lab.example:8321"])
def test_names_of_this_machine_are_taken(serve: Callable[..., Ask], runs: Path, host: str) -> None:
    ask = serve(runs, names=["Lab.example"])
    assert raw(ask, "/api/runs", host=host)[0] == 200  # by an SSH tunnel the port is another one


def test_elsewhere_than_on_this_machine_a_token_is_needed(serve: Callable[..., Ask], runs: Path) -> None:
    ask = serve(runs, host="0.0.0.0")
    assert len(ask.token) >= 32
    for target in ("/", "/api/runs", "/openapi.json", "/assets/x.js", "/api/live", "/nothing"):
        status, headers, body = raw(ask, target, host="localhost")
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert "set-cookie" not in headers
        assert ask.token.encode() not in body


def test_the_token_comes_once_in_the_address_and_then_as_a_cookie(serve: Callable[..., Ask], runs: Path) -> None:
    ask = serve(runs, token=TOKEN)
    status, headers, _ = raw(ask, f"/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert raw(ask, "/", cookie=cookie.partition(";")[0])[0] == 200
    assert raw(ask, "/api/runs", cookie=f"other=%;x; {cookie.partition(';')[0]}; y=z")[0] == 200
    assert raw(ask, "/api/runs", authorization=f"Bearer {TOKEN}")[0] == 200
    status, headers, _ = raw(ask, f"/api/runs?token={TOKEN}")
    assert (status, headers["set-cookie"]) == (200, cookie)


@pytest.mark.parametrize("shown", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü", "%00", "&token="])
def test_a_wrong_token_is_refused_wherever_it_stands(serve: Callable[..., Ask], runs: Path, shown: str) -> None:
    ask = serve(runs, token=TOKEN)
    port = urlsplit(ask.origin).port
    assert raw(ask, f"/api/runs?token={quote(shown, safe='&=%')}")[0] == 401
    assert raw(ask, "/api/runs", authorization=f"Bearer {quote(shown)}")[0] == 401
    assert raw(ask, "/api/runs", cookie=f"sonde-{port}={quote(shown)}")[0] == 401


def test_the_token_is_in_no_answer_and_in_no_log(
    serve: Callable[..., Ask], runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ask = serve(runs, token=TOKEN)
    for target in ("/api/runs", "/api/runs/good", "/openapi.json", "/", "/api/nothing", "/api/runs?limit=x"):
        _, headers, body = raw(ask, f"{target}{'&' if '?' in target else '?'}x=1", authorization=f"Bearer {TOKEN}")
        assert TOKEN.encode() not in body
        assert TOKEN not in str(headers)
        raw(ask, f"{target}{'&' if '?' in target else '?'}token={TOKEN}")
    assert TOKEN not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "origin", ["", "null", "http://evil.example", "https://{netloc}", "http://{host}:1", "http://{netloc}.evil.example"]
)
def test_what_another_page_sends_is_refused(serve: Callable[..., Ask], secret: Path, origin: str) -> None:
    ask = serve(secret)
    parts = urlsplit(ask.origin)
    shown = origin.format(netloc=parts.netloc, host=parts.hostname)
    body = b'{"kind": "tag", "text": "x"}'
    status, _, _ = raw(
        ask, "/api/runs/run/notes", method="POST", body=body, origin=shown, content_type="application/json"
    )
    assert status == 403
    assert not (secret / "run" / "notes.jsonl").exists()


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_form_can_send_is_refused(serve: Callable[..., Ask], secret: Path, kind: str) -> None:
    ask = serve(secret)
    body = b'{"kind": "tag", "text": "x"}'
    status, _, _ = raw(ask, "/api/runs/run/notes", method="POST", body=body, origin=ask.origin, content_type=kind)
    assert status == 415
    assert not (secret / "run" / "notes.jsonl").exists()


def test_a_request_that_is_too_long_is_refused(serve: Callable[..., Ask], secret: Path) -> None:
    ask = serve(secret)
    answer = ask.note("run", {"kind": "note", "text": "x" * (65 << 10)})
    assert answer.status_code == 413


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST", "TRACE"])
def test_nothing_else_can_be_done(serve: Callable[..., Ask], secret: Path, method: str) -> None:
    ask = serve(secret)
    headers = {"origin": ask.origin, "content_type": "application/json"}
    for target in ("/api/runs/run", "/api/runs", "/", "/assets/x.js"):
        assert raw(ask, target, method=method, body=b"{}", **headers)[0] == 405
    assert (secret / "run" / "run.json").exists()


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/api/runs",
        "/api/runs/good",
        "/api/nothing",
        "/api/runs?limit=x",
        "/openapi.json",
        "/api/runs/good/series?tag=loss",
    ],
)
def test_every_answer_tells_the_browser_what_to_forbid(ask: Ask, target: str) -> None:
    _, headers, _ = raw(ask, target)
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize(
    "name",
    [
        "..%2Fapp.py",
        "%2e%2e%2fapp.py",
        "..",
        ".hidden.js",
        "x.py",
        "x.js%00",
        "a%2Fb.js",
        "app.py",
        "",
        "x" * 300 + ".js",
    ],
)
def test_only_files_of_the_page_are_assets(ask: Ask, name: str) -> None:
    status, _, body = raw(ask, f"/assets/{name}")
    assert status in (400, 404)
    assert b"import" not in body


def test_texts_of_a_run_are_data_and_never_markup(serve: Callable[..., Ask], tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>\u2028</script>"
    with sonde.record(tmp_path / "run", config={hostile: hostile}) as writer:
        writer.log({"loss": 1.0, f"grad/norm@{hostile[:28]}": 2.0}, step=1)
        writer.event("note", data={"text": hostile})
    ask = serve(tmp_path)
    for path in (
        "runs",
        "runs/run",
        "runs/run/events",
        "runs/run/tags",
        "runs/%3Cscript%3E",
        "runs/run/tags?limit=<b>",
    ):
        answer = ask.client.get(f"/api/{path}")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        json.loads(answer.text)
    assert ask.run("run")["config"] == {hostile: hostile}


def test_addresses_of_this_machine_alone_are_known_as_such() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost", "LOCALHOST"))
    assert not any(
        is_loopback(host) for host in ("", "0.0.0.0", "::", "192.168.1.2", "example.org", "127.0.0.1.nip.example")
    )


def test_an_address_is_a_name_only_where_a_token_is_wanted(serve: Callable[..., Ask], runs: Path) -> None:
    Access(token=TOKEN).check_host("192.168.7.7:8321")
    assert raw(serve(runs), "/api/runs", host="192.168.7.7")[0] == 403


def test_a_stream_needs_the_token_as_well(serve: Callable[..., Ask], runs: Path) -> None:
    ask = serve(runs, token=TOKEN)
    with pytest.raises(httpx.HTTPStatusError), ask.client.stream("GET", "/api/live") as answer:
        answer.raise_for_status()
