"""A real server over really recorded runs, and the system's chromium to look at them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "src" / "sonde" / "server" / "page"
KINDS = ("healthy", "dead-units", "exploding-gradients", "overfitting")
# What chromium itself says where a server is away, or answers that something is not there.
_EXPECTED = re.compile(r"Failed to load resource|net::ERR_")


class Served:
    """`sonde ui` over a folder; it can be stopped and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "sonde", "ui", str(self.folder), "--port", str(self._port), "--no-open"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                self._port = int(found[1])
                return
        self.stop()
        raise AssertionError("the server did not start:\n" + "".join(said))

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def url(self, fragment: str = "#/") -> str:
        return f"http://127.0.0.1:{self._port}/{fragment}"

    def read(self, path: str) -> bytes:
        with urlopen(self.url("") + path, timeout=120) as answer:
            content: bytes = answer.read()
        return content


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of trainings, some with a fault."""
    folder = tmp_path_factory.mktemp("recorded")
    # In a process of its own: findings are wanted here, and the other tests' settings switch them off.
    environment = {**os.environ, "SONDE_DOCTOR": "process"}
    subprocess.run(
        [sys.executable, "-m", "tests.browser.recorded", folder, *KINDS], check=True, cwd=ROOT, env=environment
    )
    return folder


@pytest.fixture(scope="session")
def served(recorded: Path) -> Iterator[Served]:
    yield from _served(recorded)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    """A server over a folder that a test may change."""
    yield from _served(tmp_path)


def _served(folder: Path) -> Iterator[Served]:
    if not (BUILT / "index.html").is_file():
        pytest.fail("the page is not built; run: make page")
    server = Served(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("there is no chromium; run: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page; whatever goes wrong on it, blocked scripts and styles included, fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    problems: list[str] = []
    opened = watched(context.new_page(), problems)
    yield opened
    context.close()
    assert not problems


def watched(page: Page, problems: list[str]) -> Page:
    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not _EXPECTED.search(message.text):
            problems.append(message.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.set_default_timeout(30_000)
    return page
