"""Finding and loading the library, and compiling it."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import hatch_build
import pytest

from sonde.kernels.native import library


def test_the_library_beside_the_source_is_loaded() -> None:
    loaded = library.load()
    assert loaded.trouble is None
    assert "baseline" in loaded.entries


def test_a_missing_library_is_told_with_what_to_do(tmp_path: Path) -> None:
    loaded = library.load(tmp_path / "statistics.so")
    assert not loaded.entries
    assert "was not compiled" in str(loaded.trouble)
    assert "cc" in str(loaded.trouble)


def test_a_library_of_another_machine_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "statistics.so"
    path.write_bytes(b"\x7fELF of something else")
    assert "cannot be loaded" in str(library.load(path).trouble)


def test_a_library_without_the_entries_is_not_loaded() -> None:
    import _ctypes

    assert "cannot be loaded" in str(library.load(Path(_ctypes.__file__)).trouble)


def test_a_library_of_another_source_is_refused(tmp_path: Path) -> None:
    compiler = hatch_build.own_compiler()
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = tmp_path / "statistics.so"
    flags = [*hatch_build.FLAGS, '-DSOURCE="another"', "-O0", "-shared"]
    subprocess.run([compiler, *flags, str(library.SOURCE), "-o", str(path)], check=True)
    loaded = library.load(path)
    assert not loaded.entries
    assert "another version" in str(loaded.trouble)


@pytest.mark.parametrize("cc", [None, "#!/bin/sh\necho no headers here >&2\nexit 1\n"], ids=["missing", "broken"])
def test_where_nothing_compiles_it_is_said_why(tmp_path: Path, cc: str | None) -> None:
    if cc is not None:
        (tmp_path / "cc").write_text(cc)
        (tmp_path / "cc").chmod(0o755)
    code = f"""
import sys
sys.modules["ziglang"] = None  # not installed
sys.path.insert(0, {str(Path(hatch_build.__file__).parent)!r})
from pathlib import Path
import hatch_build
try:
    hatch_build.compile_library(Path("statistics.so"))
except hatch_build.NotCompiled as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ("no C compiler" if cc is None else "no headers here") in done.stdout, done.stderr
    assert not (tmp_path / "statistics.so").exists()


def asked_for(monkeypatch: pytest.MonkeyPatch, **environment: str) -> list[str]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    hook = hatch_build.CustomBuildHook.__new__(hatch_build.CustomBuildHook)
    hook.target_name = "wheel"
    return hook.dependencies()


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="ziglang may have no wheel here",
)
def test_a_compiler_is_asked_for_only_where_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SONDE_NATIVE", raising=False)
    monkeypatch.delenv("SONDE_WHEEL_TARGET", raising=False)
    assert asked_for(monkeypatch, PATH=str(tmp_path)) == [hatch_build.ZIG]
    assert asked_for(monkeypatch, SONDE_NATIVE="0") == []
    (tmp_path / "cc").touch(0o755)
    assert asked_for(monkeypatch, SONDE_NATIVE="1") == []
    assert asked_for(monkeypatch, SONDE_WHEEL_TARGET="aarch64-linux") == [hatch_build.ZIG]
    with pytest.raises(ValueError, match="aarch64-linux"):
        asked_for(monkeypatch, SONDE_WHEEL_TARGET="vax")
