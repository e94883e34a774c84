"""Which files are obeyed: attacks by files of others, and what the user trusts."""

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.config import Effective, effective
from sonde.config.sources import project_source
from sonde.config.trust import Trust
from sonde.core.errors import FormatError, SettingError

WEBHOOK = '[alerts.webhook]\nurl = "https://example.org/others"\n'
STRANGER = 4242


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def project(home: Path) -> Path:
    folder = home / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def found(folder: Path, home: Path, **environment: str) -> Effective:
    return effective(folder=folder, environment={"HOME": str(home), **environment})


def give_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give files away")
    os.chown(path, STRANGER, STRANGER)


def test_a_file_above_the_working_directory_outside_home_and_repository_is_not_read(tmp_path: Path, home: Path) -> None:
    inner = tmp_path / "shared" / "me" / "work"
    inner.mkdir(parents=True)
    (tmp_path / "shared" / "sonde.toml").write_text("budget = 0.5\n" + WEBHOOK)
    (tmp_path / "shared" / "me" / "pyproject.toml").write_text("[tool.sonde]\nbudget = 0.5\n")
    here = found(inner, home)
    assert (here.files, here.ignored, here.origins) == ((), (), {})
    (inner / "sonde.toml").write_text("budget = 0.2\n")
    assert found(inner, home).config.budget == 0.2


def test_a_repository_that_anybody_could_have_made_is_none(tmp_path: Path, home: Path) -> None:
    shared, inner = tmp_path / "shared", tmp_path / "shared" / "work"
    inner.mkdir(parents=True)
    (shared / ".git").mkdir()
    (shared / "sonde.toml").write_text("budget = 0.5\n")
    assert found(inner, home).config.budget == 0.5
    shared.chmod(0o1777)
    assert found(inner, home).origins == {}


def test_in_the_home_folder_files_are_looked_for_as_far_as_that_and_not_where_everybody_is_at_home(home: Path) -> None:
    inner = home / "a" / "b"
    inner.mkdir(parents=True)
    (home / "sonde.toml").write_text("budget = 0.2\n")
    (home.parent / "sonde.toml").write_text("budget = 0.5\n")
    assert found(inner, home).config.budget == 0.2
    (home / "sonde.toml").unlink()
    assert found(inner, home).origins == {}
    (home / "sonde.toml").write_text("budget = 0.2\n")
    home.chmod(0o1777)
    assert found(inner, home).origins == {}
    assert effective(folder=inner, environment={"HOME": "/"}).origins == {}


def test_a_file_of_another_user_is_named_and_not_obeyed(project: Path, home: Path) -> None:
    file = project / "sonde.toml"
    file.write_text("budget = 0.5\n")
    give_away(file)
    here = found(project, home)
    assert (here.origins, here.files) == ({}, ())
    assert [item.path for item in here.ignored] == [str(file)]
    assert f"belongs to user {STRANGER}" in here.ignored[0].reason


@pytest.mark.parametrize(("mode", "is_obeyed"), [(0o644, True), (0o600, True), (0o646, False), (0o666, False)])
def test_a_file_that_others_can_write_is_named_and_not_obeyed(
    project: Path, home: Path, mode: int, is_obeyed: bool
) -> None:
    file = project / "sonde.toml"
    file.write_text("budget = 0.5\n")
    file.chmod(mode)
    here = found(project, home)
    assert (here.config.budget == 0.5) is is_obeyed
    assert [item.advice for item in here.ignored] == ([] if is_obeyed else [f"chmod go-w {file}"])


def test_a_file_that_a_group_can_write_is_obeyed_only_where_the_group_is_the_users_alone(
    project: Path, home: Path
) -> None:
    file = project / "sonde.toml"
    file.write_text("budget = 0.5\n")
    file.chmod(0o664)
    if os.geteuid():
        pytest.skip("only root can give files to groups")
    os.chown(file, 0, 0)  # root's own group
    assert found(project, home).config.budget == 0.5
    os.chown(file, 0, STRANGER)
    assert found(project, home).origins == {}


def test_a_file_in_a_folder_that_everybody_can_write_is_not_obeyed(project: Path, home: Path) -> None:
    (project / "sonde.toml").write_text("budget = 0.5\n")
    project.chmod(0o777)
    here = found(project, home)
    assert here.origins == {}
    assert "folder" in here.ignored[0].reason


def test_a_link_is_not_followed_but_for_the_users_own_file(project: Path, home: Path) -> None:
    elsewhere = home.parent / "elsewhere.toml"
    elsewhere.write_text("budget = 0.5\n")
    (project / "sonde.toml").symlink_to(elsewhere)
    here = found(project, home)
    assert (here.origins, here.ignored[0].reason) == ({}, "is a link")
    own = home / ".config" / "sonde"
    own.mkdir(parents=True)
    (own / "sonde.toml").symlink_to(elsewhere)
    assert found(project, home).config.budget == 0.5


def test_a_project_file_of_others_is_named_only_where_it_speaks_of_us(project: Path, home: Path) -> None:
    elsewhere = home.parent / "pyproject.toml"
    elsewhere.write_text("[project]\n")
    (project / "pyproject.toml").symlink_to(elsewhere)
    assert found(project, home).ignored == ()
    elsewhere.write_text("[tool.sonde]\nbudget = 0.5\n")
    assert [item.reason for item in found(project, home).ignored] == ["is a link"]


@pytest.mark.parametrize("name", ["sonde.toml", "profile"])
def test_a_pipe_is_not_waited_for(project: Path, home: Path, name: str) -> None:
    os.mkfifo(project / name)
    if name == "profile":
        (project / "sonde.toml").write_text('profile = "profile"\n')
    code = "from sonde.config import effective; print(effective().config.budget)"
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "is no regular file" in done.stderr
    if name == "sonde.toml":
        assert (done.returncode, done.stdout) == (0, "0.01\n")


def test_a_file_without_end_is_not_read(project: Path, home: Path) -> None:
    with (project / "sonde.toml").open("wb") as file:
        file.truncate(1 << 40)
    assert "is larger than 1 MiB" in found(project, home).ignored[0].reason


def test_the_users_own_file_counts_least_of_all_files_and_may_act(project: Path, home: Path) -> None:
    own = home / ".config" / "sonde"
    own.mkdir(parents=True)
    (own / "sonde.toml").write_text('budget = 0.5\nconsole = "lines"\n' + WEBHOOK)
    (project / "sonde.toml").write_text("budget = 0.2\n")
    here = found(project, home)
    assert (here.config.budget, here.config.console, list(here.config.alerts.channels)) == (0.2, "lines", ["webhook"])
    assert here.origins["console"] == "user's sonde.toml"
    assert here.files == (str(own / "sonde.toml"), str(project / "sonde.toml"))
    other = home.parent / "xdg" / "sonde"
    other.mkdir(parents=True)
    (other / "sonde.toml").write_text('console = "quiet"\n')
    assert found(project, home, XDG_CONFIG_HOME=str(other.parent)).config.console == "quiet"


@pytest.mark.parametrize(
    "text",
    [
        WEBHOOK,
        'alerts.mail.to = ["others@example.org"]\n',
        '"alerts.log.file" = "x"\n',
        '[alerts]\n"log.file" = "x"\n',
        'alerts.log.file = "alerts.log"\n',
        'sinks = ["wandb"]\n',
        '[[sinks]]\nsink = "mlflow"\ntracking_uri = "http://example.org"\n',
        'runs = "/elsewhere"\n',
        'runs = "../elsewhere"\n',
        'runs = "link/runs"\n',
        'profile = "/etc/passwd"\n',
        'profile = "link/profile.toml"\n',
    ],
)
def test_what_sends_writes_or_acts_is_obeyed_after_trust_alone_and_not_after_a_change(
    project: Path, home: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    file = project / "sonde.toml"
    (project / "link").symlink_to(home.parent)
    (home.parent / "profile.toml").touch()
    file.write_text("budget = 0.2\n" + text)
    here = found(project, home)
    key = here.ignored[0].settings[0]
    assert (here.config.budget, list(here.origins)) == (0.2, ["budget"])
    assert f"sonde config trust {file}" in here.ignored[0].advice
    trust = Trust({"HOME": str(home)})
    source = project_source(file)
    assert source is not None
    trust.add(file, source.table)
    if "/etc/passwd" in text:
        with pytest.raises(FormatError, match="is not a profile"):
            found(project, home)
    else:
        trusted = found(project, home)
        assert trusted.ignored == ()
        assert [name for name in trusted.origins if name.startswith(key)]
    assert stat.S_IMODE((home / ".config" / "sonde" / "trusted.json").stat().st_mode) == 0o600
    file.write_text("budget = 0.3\n" + text)
    assert list(found(project, home).origins) == ["budget"]


def test_a_list_of_trusted_files_that_others_can_write_counts_for_nothing(project: Path, home: Path) -> None:
    file = project / "sonde.toml"
    file.write_text(WEBHOOK)
    source = project_source(file)
    assert source is not None
    Trust({"HOME": str(home)}).add(file, source.table)
    assert found(project, home).config.alerts.channels
    listed = home / ".config" / "sonde" / "trusted.json"
    listed.chmod(0o666)
    assert not found(project, home).config.alerts.channels
    listed.chmod(0o600)
    listed.write_text('{"files": 3}')
    assert not found(project, home).config.alerts.channels


def test_paths_within_the_project_and_choices_of_what_is_told_need_no_trust(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "rules.toml").write_text("GEN001 = false\n")
    (project / "deep").mkdir()
    monkeypatch.chdir(project / "deep")
    (project / "sonde.toml").write_text(
        'runs = "../all"\nprofile = "../rules.toml"\n[alerts]\nseverity = "critical"\nlimit.burst = 1\n'
    )
    here = found(project / "deep", home)
    assert here.ignored == ()
    assert (here.config.runs, here.config.rules) == ("../all", {"GEN001": False})
    assert here.config.alerts.settings.severity == "critical"


def test_a_file_that_is_named_is_the_users_own_and_must_be_in_order(project: Path, home: Path) -> None:
    (project / "sonde.toml").write_text("budget = 0.5\n")
    named = home / "named.toml"
    named.write_text(WEBHOOK)
    here = found(project, home, SONDE_CONFIG=str(named))
    assert (list(here.config.alerts.channels), here.config.budget) == (["webhook"], 0.01)
    named.chmod(0o666)
    with pytest.raises(FormatError, match="can be written by others, and SONDE_CONFIG names it; chmod go-w"):
        found(project, home, SONDE_CONFIG=str(named))
    with pytest.raises(SettingError, match="`SONDE_CONFIG` must not hold control characters"):
        found(project, home, SONDE_CONFIG="a\nb")


def test_control_characters_are_refused_and_in_files_named_and_not_obeyed(project: Path, home: Path) -> None:
    (project / "sonde.toml").write_text('budget = 0.2\nruns = "x\\ntouch here\\n"\nsinks = ["a\\u001b[2J"]\n')
    here = found(project, home)
    assert (here.config.runs, here.config.sinks, here.config.budget) == ("runs", (), 0.2)
    assert [(item.settings, item.reason) for item in here.ignored] == [
        (("runs", "sinks"), "control characters are refused")
    ]
    for text in ("x\ny", "x\x1b[2J", "x\x7f", "x\x9b", "x\u202e", "x\ud800"):
        with pytest.raises(
            SettingError, match="SONDE_RUNS in the environment: `runs` must not hold control characters"
        ):
            found(home, home, SONDE_RUNS=text)
        with pytest.raises(SettingError, match="argument: `runs` must not hold control characters"):
            found(home, home).over({"runs": text})
    with pytest.raises(SettingError, match="got a secret that does"):
        found(home, home, SONDE_WEBHOOK="https://example.org/hidden\x1b")


def test_what_is_not_obeyed_is_named_once(project: Path, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (project / "sonde.toml").write_text(WEBHOOK)
    with caplog.at_level(logging.WARNING):
        found(project, home).over({"budget": 0.3})
        found(project, home)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "sonde.config"]
    assert said.startswith(f"{project / 'sonde.toml'}: alerts.webhook.url not obeyed: ")
    assert said.endswith(f"sonde config trust {project / 'sonde.toml'}")
