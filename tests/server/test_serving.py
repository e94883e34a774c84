"""`sonde ui` as a person starts and ends it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import sonde
from sonde.cli.main import main


@contextlib.contextmanager
def started(*args: object, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program and the address that it prints."""
    command = [sys.executable, "-m", "sonde", "ui", *map(str, args), "--no-open", "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, process.communicate()
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_it_quietly_also_while_a_page_listens(runs: Path) -> None:
    with started(runs) as (process, address), httpx.Client(base_url=address, timeout=20) as client:
        assert client.get("/api/runs").json()["total"] == 3
        with client.stream("GET", "/api/live", params={"run": "good"}) as answer:
            next(answer.iter_lines())
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert (out, err) == ("", "sonde: Ctrl-C ends it\n")


def test_a_port_that_is_taken_is_said(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["ui", str(runs), "--no-open", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"port {port} is taken" in said
    assert "--port" in said


def test_a_folder_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", str(tmp_path / "none"), "--no-open"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(runs: Path) -> None:
    for package in ("fastapi", "uvicorn"):
        code = (
            f"import sys; sys.modules[{package!r}] = None; import sonde.cli.main as p; sys.exit(p.main(sys.argv[1:]))"
        )
        command = [sys.executable, "-c", code, "ui", str(runs), "--no-open"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "pip install 'sonde[ui]'" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("token", ["short", "with blank in it", "ümlaut-ümlaut", "semicolon;semicolon", "a" * 7])
def test_a_token_that_no_cookie_can_hold_is_refused(runs: Path, token: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", str(runs), "--no-open", "--token", token]) == 2
    assert token not in capsys.readouterr().err


def test_the_token_may_come_from_the_environment(runs: Path) -> None:
    with started(runs, SONDE_UI_TOKEN="from-the-environment") as (_, address):
        assert address.endswith("/?token=from-the-environment")
        base = address.partition("?")[0]
        assert httpx.get(f"{base}api/runs").status_code == 401
        with httpx.Client(base_url=base, follow_redirects=True) as client:
            assert client.get(address).status_code == 200
            assert client.get("/api/runs").json()["total"] == 3


def test_no_torch_is_needed_to_look_at_runs(runs: Path) -> None:
    code = """
import asyncio, sys, httpx
from sonde.server.app import application

async def look():
    transport = httpx.ASGITransport(application(sys.argv[1]))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in ("", "/good", "/good/series?tag=loss", "/good/layers?path=grad/rms", "/good/layer-paths"):
            answer = await client.get(f"/api/runs{path}")
            assert answer.status_code == 200, answer.text

asyncio.run(look())
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(runs)], check=True)


def test_help_tells_of_the_tunnel(call: Callable[..., str]) -> None:
    assert "ssh -L" in call("ui", "--help")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*args: str) -> str:
        assert main(list(args)) == 0
        return capsys.readouterr().out

    return run


def test_runs_elsewhere_are_copied_as_they_grow(tmp_path: Path) -> None:
    there = tmp_path / "there"
    with sonde.record(there / "deep" / "one") as writer:
        for step in range(2000):
            writer.log({"loss": 1 / (1 + step)}, step=step)
    (there / "not-a-run.bin").write_bytes(b"x" * 1000)
    with started(there.as_uri()) as (_, address), httpx.Client(base_url=address, timeout=20) as client:
        for steps in (1999, 2100):
            end = time.monotonic() + 60
            while [line["steps"] for line in client.get("/api/runs").json()["runs"]] != [steps]:
                assert time.monotonic() < end
            with sonde.record(there / "deep" / "one") as writer:
                writer.log({"loss": 0.0}, step=2100)
        answer = client.post(
            "/api/runs/deep%2Fone/notes", json={"kind": "tag", "text": "x"}, headers={"origin": address.rstrip("/")}
        )
        assert answer.status_code == 403
        assert client.get("/api/runs").json()["folder"] == there.as_uri()


def test_an_address_that_arrow_cannot_read_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "nothing://at/all", "--no-open"]) == 2
    assert "nothing://at/all cannot be read" in capsys.readouterr().err
