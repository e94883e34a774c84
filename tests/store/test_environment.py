import os
import subprocess
import sys
from pathlib import Path

import pytest

import sonde
from sonde.core import strict_json
from sonde.store.environment import commit, describe, redactor, told


def test_a_recorded_run_holds_no_secret_of_the_command_line(tmp_path: Path) -> None:
    code = "import sonde, sys; sonde.record(sys.argv[1]).close()"
    arguments = [str(tmp_path / "run"), "--api-key", "hunter2", "--token=hunter2", "https://hunter1:hunter2@host"]
    environment = {**os.environ, "SECRET": "hunter2"}
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, env=environment)
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes()
    assert sonde.load(tmp_path / "run").info["environment"]["command"][2:4] == ["--api-key", "•••"]


def test_secrets_of_the_environment_are_known_as_soon_as_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redactor().text("with tr0ub4dor-horse") == "with tr0ub4dor-horse"
    monkeypatch.setenv("DEPLOY_PASSWORD", "tr0ub4dor-horse")
    assert redactor().text("with tr0ub4dor-horse") == "with •••"
    monkeypatch.delenv("DEPLOY_PASSWORD")
    assert redactor().text("with tr0ub4dor-horse") == "with tr0ub4dor-horse"


def test_an_exception_is_told_with_its_place_and_without_its_secret() -> None:
    try:
        raise ValueError("no login with password=hunter2")
    except ValueError as error:
        shown = told(error)
    assert shown.splitlines()[0] == "Traceback (most recent call last):"
    assert "test_environment.py" in shown
    assert shown.endswith("ValueError: no login with password=•••")


def test_the_description_says_what_a_reader_will_ask_for() -> None:
    told = describe()
    assert told["python"].startswith("3.")
    assert told["packages"]["numpy"]
    assert told["host"] == os.uname().nodename
    assert told["cpus"] == os.cpu_count()
    assert strict_json.loads(strict_json.dumps(told)) == told


def git(folder: Path, *words: str) -> str:
    names = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        names |= {f"GIT_{who}_NAME": "A", f"GIT_{who}_EMAIL": "a@b"}
    done = subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, text=True, env={**os.environ, **names}
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=first")
    return folder


def test_the_commit_is_the_one_that_is_checked_out(repository: Path) -> None:
    inside = repository / "a" / "b"
    inside.mkdir(parents=True)
    first = git(repository, "rev-parse", "HEAD")
    assert commit(repository) == commit(inside) == first
    git(repository, "checkout", "--quiet", "-b", "feature/x")
    git(repository, "commit", "--quiet", "--allow-empty", "--message=second")
    second = git(repository, "rev-parse", "HEAD")
    assert commit(inside) == second != first


def test_the_commit_is_found_when_references_are_packed(repository: Path) -> None:
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git" / "refs" / "heads" / "main").exists()
    assert commit(repository) == git(repository, "rev-parse", "HEAD")


def test_the_commit_is_found_on_a_detached_head(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    assert commit(repository) == git(repository, "rev-parse", "HEAD")


def test_the_commit_of_a_worktree_is_its_own(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    other = tmp_path / "other"
    git(repository, "worktree", "add", "--quiet", "-b", "side", str(other))
    git(other, "commit", "--quiet", "--allow-empty", "--message=second")
    second = git(other, "rev-parse", "HEAD")
    assert commit(other) == second != first
    git(repository, "pack-refs", "--all")
    assert commit(other) == second
    assert commit(repository) == first


def test_there_is_no_commit_before_the_first_or_outside_of_a_repository(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
    git(tmp_path, "init", "--quiet")
    assert commit(tmp_path) is None


def test_a_damaged_repository_has_no_commit(repository: Path) -> None:
    (repository / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert commit(repository) is None
