"""Compiles the native kernel for wheels and editable installs, and builds the page.

`python hatch_build.py` compiles in place.

Without a compiler on the machine `ziglang`, a compiler in a wheel, is asked for. Where nothing compiles, Sonde is
installed without the kernel, says so, and measures with plain torch.

SONDE_WHEEL_TARGET=aarch64-linux (or x86_64-linux) makes a wheel for that machine, with ziglang.
SONDE_NATIVE=0 leaves the kernel out, and asks for no compiler.
SONDE_PAGE=0 leaves the page out. How it is built is in `web/build_page.py`; where it cannot be, Sonde is installed
without it, and says so.
"""

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING and importlib.util.find_spec("hatchling"):
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
else:  # compiled in place, where no wheel is built

    class BuildHookInterface:
        """What is used of hatchling's."""

        target_name: str
        app: Any


PLACE = Path("kernels", "native")
SOURCE = Path(__file__).parent / "src" / "sonde" / PLACE / "statistics.c"
LIBRARY = SOURCE.with_suffix(".library.so")  # two dots: what lists modules takes it for none

ZIG = "ziglang>=0.13"
# Machines that ziglang has wheels for. A requirement that cannot be had would end the installation.
ZIG_MACHINES = {"Linux": {"x86_64", "aarch64"}, "Darwin": {"x86_64", "arm64"}}
GLIBC = "2.17"  # what manylinux2014 promises

FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-pthread"]
V3 = [
    "-mavx2",
    "-mfma",
    "-mf16c",
    "-mbmi",
    "-mbmi2",
    "-mlzcnt",
    "-mmovbe",
]  # x86-64-v3, in words that old compilers know


class NotCompiled(Exception):
    """Why there is no library."""


class CustomBuildHook(BuildHookInterface):
    """Puts the library into the wheel, or beside its source for an editable install."""

    def dependencies(self) -> list[str]:
        """A compiler in a wheel, where nothing else compiles, and Node in a wheel, where there is no other."""
        return [*self._compilers(), *self._nodes()]

    def _nodes(self) -> list[str]:
        page = _page_builder()
        wanted = self.target_name == "wheel" and page is not None and page.needs_wheel()
        return [page.NODE_WHEEL] if wanted else []

    def _compilers(self) -> list[str]:
        if _is_left_out() or self.target_name != "wheel" or not (_target() or own_compiler() is None):
            return []
        return [ZIG] if _zig_serves() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; say why where that fails."""
        if self.target_name != "wheel":
            return
        self._build_page(version, build_data)
        try:
            if version == "editable":
                compile_library(LIBRARY)
                return
            self._folder = tempfile.TemporaryDirectory()
            library = Path(self._folder.name, LIBRARY.name)
            tag = compile_library(library, target=_target())
            build_data["force_include"][str(library)] = str(Path("sonde") / PLACE / LIBRARY.name)
            build_data["pure_python"], build_data["tag"] = False, f"py3-none-{tag}"
        except NotCompiled as error:
            if version == "editable":
                LIBRARY.unlink(missing_ok=True)  # of another source
            self.app.display_warning(f"Sonde is built without its native kernel, plain torch will measure: {error}")

    def _build_page(self, version: str, build_data: dict[str, Any]) -> None:
        page = _page_builder()
        if page is None:  # a source archive without it
            return
        try:
            folder = page.build_page()
        except (page.NotBuilt, OSError) as error:
            self.app.display_warning(f"Sonde is built without its page, `sonde ui` will have none: {str(error)[:400]}")
        else:
            if version != "editable":
                build_data["force_include"][str(folder)] = "sonde/server/page"


def _page_builder() -> Any:
    """The module `web/build_page.py`, which is no part of the package; None where it is not here."""
    place = Path(__file__).parent / "web" / "build_page.py"
    if not place.is_file():
        return None
    spec = importlib.util.spec_from_file_location("build_page", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_library(library: Path, *, target: str | None = None, extra: Sequence[str] = ()) -> str:
    """The library, for this machine or for `target`; returns the platform's part of its wheel's tag.

    Raises:
        NotCompiled: nothing compiles it.
    """
    if _is_left_out():
        raise NotCompiled("SONDE_NATIVE=0 says so")
    reasons = []
    for compiler, tag in _compilers(target):
        try:
            _compile(compiler, library, (target or platform.machine()).startswith(("x86_64", "AMD64")), extra)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            reasons.append(f"{' '.join(compiler[:4])}: {said.strip().splitlines()[-1] if said.strip() else error}")
        else:
            return tag
    raise NotCompiled("; ".join(reasons) or "there is no C compiler (cc), and ziglang is not installed")


def own_compiler() -> str | None:
    """A C compiler of the machine."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def _zig_serves() -> bool:
    """Whether there is a ziglang for this machine, and what it makes can be loaded here."""
    known = platform.machine() in ZIG_MACHINES.get(platform.system(), ()) and sys.maxsize > 2**32
    return known and (platform.system() != "Linux" or platform.libc_ver()[0] == "glibc" or _target() is not None)


def _compilers(target: str | None) -> list[tuple[list[str], str]]:
    """Commands that may compile, the best first, and the platform's tag of what each makes."""
    found = []
    machine, system = platform.machine(), platform.system()
    own = own_compiler()
    if target is None and own is not None:
        tag = f"linux_{machine}" if system == "Linux" else f"macosx_11_0_{machine}"
        found.append(([own], tag))
    if _zig_serves() and importlib.util.find_spec("ziglang") is not None:
        zig = [sys.executable, "-m", "ziglang", "cc"]
        if target is not None or system == "Linux":
            cpu = (target or machine).split("-")[0]
            found.append(([*zig, "-target", f"{cpu}-linux-gnu.{GLIBC}"], f"manylinux_2_17_{cpu}.manylinux2014_{cpu}"))
        elif system == "Darwin":
            found.append((zig, f"macosx_11_0_{machine}"))
    return found


def _compile(compiler: list[str], library: Path, for_x86: bool, extra: Sequence[str]) -> None:
    """One object for each level of instructions, linked into one library."""
    is_zig = "ziglang" in compiler
    level = {"": [], "_v3": [*(["-mcpu=x86_64_v3"] if is_zig else V3), "-DSTATISTICS=sonde_statistics_v3"]}
    named = f'-DSOURCE="{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}"'
    with tempfile.TemporaryDirectory() as folder:
        # zig would otherwise leave 100 MB in the user's cache.
        own = {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        objects = [str(Path(folder, f"statistics{name}.o")) for name in level if for_x86 or not name]
        finished = Path(folder, library.name)
        link = [*compiler, *FLAGS, *extra, "-shared", *objects, "-o", str(finished)]
        compiles = zip(objects, level.values(), strict=False)
        for command in (
            *([*compiler, *FLAGS, *extra, named, *flags, "-c", str(SOURCE), "-o", made] for made, flags in compiles),
            [*link, "-Wl,-s"] if not extra and platform.system() == "Linux" else link,
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **own}, timeout=600)
        # In one step: a training that has the old one open keeps it.
        waiting = library.with_suffix(f".so-{os.getpid()}")
        shutil.copyfile(finished, waiting)
        waiting.replace(library)


def _target() -> str | None:
    target = os.environ.get("SONDE_WHEEL_TARGET") or None
    if target not in (None, "aarch64-linux", "x86_64-linux"):
        raise ValueError(f"SONDE_WHEEL_TARGET must be aarch64-linux or x86_64-linux, got {target}.")
    return target


def _is_left_out() -> bool:
    return os.environ.get("SONDE_NATIVE") == "0"


if __name__ == "__main__":
    try:
        compile_library(LIBRARY)
    except NotCompiled as reason:
        sys.exit(f"The native kernel was not compiled: {reason}")
    sys.stdout.write(f"{LIBRARY}\n")
