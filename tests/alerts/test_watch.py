"""Alerts of a training that is being watched."""

import io
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from tests.alerts.made_up import finding
from tests.alerts.servers import Reply, receiver, smtp_server, text_of

import sonde
from sonde.alerts.config import read
from sonde.core import strict_json
from sonde.core.errors import SettingError

torch = pytest.importorskip("torch", reason="the monitor needs it")

from tests.alerts.trainings import Diverging  # noqa: E402

from sonde.cli.main import main  # noqa: E402
from sonde.monitor.alerting import Alarms, loss_curve  # noqa: E402

CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SONDE_DOCTOR", "process")
    monkeypatch.setenv("SONDE_CONSOLE", "quiet")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def listed(text: str) -> set[str]:
    return set(CODE.findall(text))


@pytest.mark.parametrize("doctor", ["process", "thread"])
def test_findings_reach_every_channel_while_the_training_runs_and_that_they_are_over_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, doctor: str
) -> None:
    monkeypatch.setenv("SONDE_DOCTOR", doctor)
    (tmp_path / "sonde.toml").write_text(
        "[alerts]\ngroup_s = 0.01\nlimit.refill_s = 0.01\ntotal_limit.refill_s = 0.01\n"
    )
    with receiver() as hook, smtp_server() as post:
        monkeypatch.setenv("SONDE_WEBHOOK", hook.url)
        monkeypatch.setenv("SONDE_SMTP_URL", f"smtp+plain://localhost:{post.port}")
        monkeypatch.setenv("SONDE_MAIL_TO", "me@example.org")
        training = Diverging()
        with sonde.watch(training.model, training.optimizer, run=tmp_path / "run") as watch:
            training.train(watch, 25)
            hook.kept.wait_for(bool)  # what begins and ends within one message is told once
            training.train(watch, 125)
            requests = hook.kept.wait_for(
                lambda kept: any(strict_json.loads(request.body)["resolved"] for request in kept)
            )
            payloads = [strict_json.loads(request.body) for request in requests]
            post.mails.wait_for(bool)
            over = {item["code"] for payload in payloads for item in payload["resolved"]}
            assert over <= {item["code"] for payload in payloads for item in payload["findings"]}
        told = [item for request in hook.kept.all() for item in strict_json.loads(request.body)["findings"]]
        mails = [mail for _, mail in post.mails.all()]
    alarms = {found.code for found in watch.findings() if found.severity.is_alarm}
    assert {item["code"] for item in told} == alarms
    assert set().union(*(listed(text_of(mail)) for mail in mails)) == alarms
    assert any(part.get_content_type() == "image/png" for mail in mails for part in mail.walk())


def test_a_dead_channel_is_one_warning_and_an_information_and_changes_no_loss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SONDE_ALERTS", "off")
    training = Diverging()
    with sonde.watch(training.model, training.optimizer, run=tmp_path / "without") as watch:
        without = training.train(watch, 100)
    monkeypatch.delenv("SONDE_ALERTS")
    (tmp_path / "sonde.toml").write_text("[alerts]\ngroup_s = 0.0\n")
    monkeypatch.setenv("SONDE_ALERT_LOG", str(tmp_path / "sonde.toml" / "not-a-folder"))
    training = Diverging()
    with sonde.watch(training.model, training.optimizer, run=tmp_path / "with") as watch:
        losses = training.train(watch, 100)
    assert str(losses) == str(without)  # NaN and all
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("alerts:")]
    assert "alerts: log refuses messages" in told[0]
    assert len([text for text in told if "refuses" in text]) == 1
    reasons = [event.data["reason"] for event in sonde.load(tmp_path / "with").events("monitor-problem")]
    assert any("log refuses messages" in reason for reason in reasons)


SECRETS = ("hook-hidden", "smtp-hidden", "sign-hidden", "slack-hidden", "apprise-hidden")


def test_no_file_log_or_output_of_a_run_holds_a_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "debug.log"
    handler = logging.FileHandler(log)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    home = tmp_path / "home"
    home.mkdir()
    statuses = iter([500])  # tried again, then refused
    printed = io.StringIO()
    try:
        with (
            receiver(lambda request: Reply(next(statuses, 403), body=request.path.encode())) as down,
            receiver() as up,
            smtp_server(login=("u", "w")) as post,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            monkeypatch.chdir(home)
            variables = {
                "SONDE_CONSOLE": "auto",
                "SONDE_SLACK_WEBHOOK": f"{up.url}/slack-hidden",
                "SONDE_WEBHOOK": f"{down.url}/hook-hidden",
                "SONDE_WEBHOOK_SECRET": "sign-hidden",
                "SONDE_SMTP_URL": f"smtp+plain://u:smtp-hidden@localhost:{post.port}",
                "SONDE_MAIL_TO": "me@example.org",
                "SONDE_APPRISE": "no-such://apprise-hidden",
                "SONDE_ALERT_LOG": str(tmp_path / "alerts.log"),
                "SONDE_SINKS": "tensorboard" if _has("tensorboard") else "",
            }
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            training = Diverging()
            run = home / "run"
            with sonde.watch(training.model, training.optimizer, run=run) as watch:
                training.train(watch, 60)
            assert [text for request in up.kept.all() for text in [request.body.decode()] if "GRD001" in text]
            for words in (
                ["config"],
                ["config", "--json"],
                ["config", str(run)],
                ["alerts", "test"],
                ["show", str(run)],
            ):
                main(words)
            main(["show", str(run), "--json"])
            main(["report", str(run), "--out", str(home / "report.html")])
            main(["report", str(run), "--out", str(home / "report.md")])
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
    (home / "printed.txt").write_text(printed.getvalue() + "".join(capfd.readouterr()))
    shown = (home / "printed.txt").read_text()
    assert 'alerts.slack.url = "•••"' in shown
    assert "mail     refused" in shown
    assert "refuses messages" in log.read_text()
    files = [file for file in (log, tmp_path / "alerts.log", *home.rglob("*")) if file.is_file()]
    assert {"run.json", "events.jsonl", "debug.log", "report.html"} <= {file.name for file in files}
    for file in files:
        content = file.read_bytes()
        assert not [secret for secret in SECRETS if secret.encode() in content], file


def _has(module: str) -> bool:
    from sonde.core.optional import available

    return available(module)


def test_a_wrong_configuration_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "sonde.toml").write_text("[alerts.slakc]\nurl = 'x'\n")
    training = Diverging()
    with pytest.raises(SettingError, match=r"sonde\.toml: `alerts\.slakc` is no setting; did you mean `alerts\.slack`"):
        sonde.watch(training.model, training.optimizer, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_a_channel_or_a_doctor_no_thread_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def telling() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("sonde-alerts")} - before

    before = set(threading.enumerate())
    training = Diverging()
    with sonde.watch(training.model, training.optimizer, run=tmp_path / "none"):
        assert not telling()
    monkeypatch.setenv("SONDE_ALERT_LOG", "x")
    with sonde.watch(training.model, training.optimizer, run=tmp_path / "off", settings={"doctor": "off"}):
        assert not telling()
    with sonde.watch(training.model, training.optimizer, run=tmp_path / "on"):
        assert telling()
    assert not telling()


def test_a_forked_child_tells_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sonde.toml").write_text("[alerts]\ngroup_s = 3600.0\n")
    monkeypatch.setenv("SONDE_ALERT_LOG", str(tmp_path / "alerts.log"))
    training = Diverging()
    watch = sonde.watch(training.model, training.optimizer, run=tmp_path / "run")
    training.train(watch, 60)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            watch.close()
            status = int((tmp_path / "alerts.log").exists())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    watch.close()
    told = [line.split(" on ")[1].split()[1] for line in (tmp_path / "alerts.log").read_text().splitlines()]
    assert told
    assert len(told) == len(set(told))


def test_what_was_found_before_a_resumption_is_not_told_to_be_over(tmp_path: Path) -> None:
    file = tmp_path / "alerts.log"
    run = tmp_path / "run"
    alarms = Alarms(read({"group_s": 0, "log": {"file": str(file)}}), run, lambda: run, lambda reason: None)
    alarms.put(finding("AAA001", is_open=False))
    alarms.put(finding("AAA002"))
    alarms.close(60.0)
    assert listed(file.read_text()) == {"AAA002"}


def test_the_curve_is_the_loss_so_far(tmp_path: Path) -> None:
    assert loss_curve(_recorded(tmp_path / "none", {})) is None
    curve = loss_curve(_recorded(tmp_path / "some", {1: 3.0, 2: float("nan"), 3: 1.0}))
    assert curve is not None
    assert (str(curve.values), curve.title) == ("(3.0, nan, 1.0)", "loss from step 1 on")


def _recorded(folder: Path, losses: dict[int, float]) -> Path:
    with sonde.record(folder) as writer:
        for step, loss in losses.items():
            writer.log({"loss": loss}, step=step)
    return folder


RANKS = """
import torch.distributed as dist
from tests.alerts.trainings import Diverging
import sonde
dist.init_process_group("gloo")
training = Diverging()
with sonde.watch(training.model, training.optimizer, run="run") as watch:
    training.train(watch, 60)
dist.destroy_process_group()
"""


def test_only_the_first_rank_tells_and_feeds(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    (tmp_path / "script.py").write_text(RANKS)
    (tmp_path / "sonde.toml").write_text(
        'sinks = ["tensorboard"]\n[alerts]\ngroup_s = 3600\n[alerts.log]\nfile = "alerts.log"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "SONDE_CONFIG": "sonde.toml",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [line.split(" on ")[1].split()[1] for line in (tmp_path / "alerts.log").read_text().splitlines()]
    assert told
    assert len(told) == len(set(told))
    assert (tmp_path / "run" / "ranks" / "1" / "run.json").exists()
    assert [path.parent for path in tmp_path.rglob("events.out.*")] == [tmp_path / "run" / "tensorboard"]
