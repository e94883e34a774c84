"""Sending from the background: nobody is held up, nothing is lost that was promised."""

import itertools
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.alerts.made_up import finding
from tests.alerts.servers import WAIT_S, Reply, Request, aiosmtpd_server, receiver, smtp_server, text_of

from sonde.alerts.backoff import Backoff
from sonde.alerts.channels.channel import Channel, Delivered, Outcome
from sonde.alerts.channels.log_file import LogFile
from sonde.alerts.channels.mail import Mail
from sonde.alerts.channels.slack import Slack
from sonde.alerts.channels.webhook import Webhook
from sonde.alerts.choices import Choice
from sonde.alerts.config import read
from sonde.alerts.limits import Limit
from sonde.alerts.notices import Bulletin, Curve
from sonde.alerts.policy import Policy
from sonde.alerts.sender import Sender
from sonde.alerts.trial import trial
from sonde.core import strict_json
from sonde.core.findings import Severity
from sonde.core.secret import Secret

CRITICAL = Severity.CRITICAL
AT_ONCE = Backoff(first_s=0.001, most_s=0.01)
OFTEN = Limit(burst=1000, refill_s=0.001)
SELDOM = Limit(burst=1, refill_s=1e6)


class Sending(NamedTuple):
    sender: Sender
    warnings: list[str]


@contextmanager
def sending(
    channels: dict[str, Channel], *, curve: Callable[[], Curve | None] | None = None, **policy: Any
) -> Iterator[Sending]:
    settings = {"group_s": 0.0, "limit": OFTEN, "total_limit": OFTEN, **policy}
    warnings: list[str] = []
    sender = Sender(
        Policy(channels={name: Choice() for name in channels}, **settings),
        channels,
        run="runs/demo",
        curve=curve,
        warn=warnings.append,
        backoff=AT_ONCE,
    )
    try:
        yield Sending(sender, warnings)
    finally:
        sender.close(WAIT_S)


class Held:
    """A channel that does not come back until it is let go."""

    def __init__(self) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.taken: list[Bulletin] = []

    def send(self, bulletin: Bulletin) -> Outcome:
        self.entered.set()
        assert self.let_go.wait(WAIT_S)
        self.taken.append(bulletin)
        return Delivered()


class Broken:
    """A plug-in with a fault."""

    def send(self, bulletin: Bulletin) -> Outcome:
        raise RuntimeError("the token is hunter2")


def codes(bodies: list[Request]) -> list[str]:
    return [found["code"] for request in bodies for found in strict_json.loads(request.body)["findings"]]


def test_a_finding_arrives() -> None:
    with receiver() as server, sending({"webhook": Webhook(url=Secret(server.url))}) as (sender, warnings):
        sender.put(finding("AAA001"))
        server.kept.wait_for(lambda kept: codes(kept) == ["AAA001"])
        assert sender.close(WAIT_S) == {}
    assert warnings == []


def test_what_waits_for_company_is_sent_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "alerts.log"
    with sending({"log": LogFile(file=str(file))}, group_s=3600.0) as (sender, _):
        sender.put(finding("AAA001"))
        sender.put(finding("AAA002"))
        assert sender.close(WAIT_S) == {}
    text = file.read_text(encoding="utf-8")
    assert [line.count(" runs/demo on ") for line in text.splitlines()] == [1, 1]
    assert [code for code in ("AAA001", "AAA002") if code in text] == ["AAA001", "AAA002"]


def test_the_end_tells_critical_findings_over_the_limit_and_says_what_it_did_not_tell() -> None:
    with receiver() as server:
        hook = Webhook(url=Secret(server.url))
        with sending({"webhook": hook}, limit=SELDOM) as (sender, warnings):
            sender.put(finding("AAA001"))
            server.kept.wait_for(lambda kept: codes(kept) == ["AAA001"])
            sender.put(finding("AAA002", severity=CRITICAL))
            sender.put(finding("AAA003"))
            assert sender.close(WAIT_S) == {}
            assert codes(server.kept.all()) == ["AAA001", "AAA002"]
            assert strict_json.loads(server.kept.all()[-1].body)["more"] == 1
        with sending({"webhook": hook}, limit=SELDOM) as (sender, warnings):
            sender.put(finding("BBB001"))
            server.kept.wait_for(lambda kept: codes(kept)[-1] == "BBB001")
            sender.put(finding("BBB002"))
            assert sender.close(WAIT_S) == {"webhook": 1}
    assert warnings == ["alerts: 1 of the findings could not be told to webhook; see sonde diagnose runs/demo"]


def test_a_channel_that_hangs_holds_up_neither_the_caller_nor_the_others_nor_the_end() -> None:
    held = Held()
    with (
        receiver() as server,
        sending({"held": held, "webhook": Webhook(url=Secret(server.url))}) as (sender, warnings),
    ):
        sender.put(finding("AAA001"))
        assert held.entered.wait(WAIT_S)
        for number in range(2, 100):
            sender.put(finding(f"AAA{number:03}", severity=CRITICAL))
        server.kept.wait_for(lambda kept: len(codes(kept)) == 99)
        assert sender.close(0.05) == {"held": 99}
        held.let_go.set()
    assert len(warnings) == 1


def test_what_there_is_no_room_for_is_counted_and_critical_findings_have_room() -> None:
    held, busy, released = Held(), threading.Event(), threading.Event()
    held.let_go.set()

    def curve() -> None:
        busy.set()
        assert released.wait(WAIT_S)

    with sending({"held": held}, curve=curve) as (sender, _):
        sender.put(finding("AAA000"))
        assert busy.wait(WAIT_S)
        for number in range(25_000):  # there is room for 20,000
            sender.put(finding("BBB000", first=number))
        sender.put(finding("CCC000", severity=CRITICAL))
        released.set()
        assert sender.close(WAIT_S) == {}
    alarms = [alarm.code for bulletin in held.taken for alarm in bulletin.notice.alarms]
    assert len(alarms) + sum(bulletin.notice.more for bulletin in held.taken) == 25_002
    assert alarms.count("CCC000") == 1


def test_a_server_in_trouble_is_asked_again_until_it_takes_the_message_once() -> None:
    answers = iter([503] * 6)
    with receiver(lambda request: Reply(next(answers, 200))) as server:
        with sending({"webhook": Webhook(url=Secret(server.url))}) as (sender, warnings):
            sender.put(finding("AAA001"))
            (kept,) = server.kept.wait_for(bool)
        ids = {request.headers["X-Sonde-Delivery"] for request in (kept, *server.turned_away.all())}
    assert (len(server.turned_away.all()), len(ids)) == (6, 1)
    assert warnings == ["alerts: webhook is dead, still trying: HTTP 503 (ok)"]


def test_a_server_that_says_when_to_come_again_is_not_asked_before() -> None:
    answers = iter([Reply(503, {"Retry-After": "3600"})])
    with receiver(lambda request: next(answers, Reply())) as server, receiver() as other:
        channels: dict[str, Channel] = {
            "asked": Webhook(url=Secret(server.url)),
            "other": Webhook(url=Secret(other.url)),
        }
        with sending(channels) as (sender, _):
            for number in range(10):  # meanwhile the back-off alone would have been over many times
                sender.put(finding(f"AAA{number:03}"))
                other.kept.wait_for(lambda kept, number=number: len(codes(kept)) == number + 1)  # type: ignore[misc]
            assert (len(server.turned_away.all()), len(server.kept.all())) == (1, 0)
            assert sender.close(WAIT_S) == {}


def test_a_refused_message_is_told_with_the_next_one_and_complained_of_once() -> None:
    answers = iter([404, 400])
    with (
        receiver(lambda request: Reply(next(answers, 200))) as server,
        sending({"webhook": Webhook(url=Secret(server.url))}) as (sender, warnings),
    ):
        sender.put(finding("AAA001"))
        server.turned_away.wait_for(lambda requests: len(requests) == 2)
        sender.put(finding("AAA002"))
        server.kept.wait_for(lambda kept: sorted(codes(kept)) == ["AAA001", "AAA002"])
    assert warnings == ["alerts: webhook refuses messages: HTTP 404 (ok)"]


def test_a_channel_with_a_fault_is_one_warning_without_its_message() -> None:
    with sending({"broken": Broken()}, limit=Limit(burst=3, refill_s=1e6)) as (sender, warnings):
        sender.put(finding(severity=CRITICAL))
        assert sender.close(WAIT_S) == {"broken": 1}
    assert warnings[0] == "alerts: broken refuses messages: it fails with RuntimeError"
    assert "hunter2" not in "".join(warnings)


def test_a_dead_channel_at_the_end_is_given_up_in_time() -> None:
    with (
        receiver(lambda request: Reply(503)) as server,
        sending({"slack": Slack(url=Secret(server.url))}) as (sender, warnings),
    ):
        sender.put(finding(severity=CRITICAL))
        server.turned_away.wait_for(lambda requests: len(requests) >= 5)
        assert sender.close(0.2) == {"slack": 1}
    assert len(warnings) == 2


def test_a_channel_that_comes_back_during_the_end_is_told() -> None:
    answers = iter([503] * 20)
    with receiver(lambda request: Reply(next(answers, 200))) as server:
        with sending({"webhook": Webhook(url=Secret(server.url))}) as (sender, _):
            sender.put(finding("AAA001", severity=CRITICAL))
            assert sender.close(WAIT_S) == {}
        assert codes(server.kept.all()) == ["AAA001"]


def test_nothing_is_taken_after_the_end_or_a_fork(tmp_path: Path) -> None:
    file = tmp_path / "alerts.log"
    with sending({"log": LogFile(file=str(file))}) as (sender, _):
        sender.close(WAIT_S)
        sender.put(finding())
        assert sender.close(WAIT_S) == {}
    with sending({"log": LogFile(file=str(file))}) as (sender, _):
        sender.forget()
        sender.put(finding())
        assert sender.close(WAIT_S) == {}
    assert not file.exists()


def test_a_mail_shows_the_curve_and_one_whose_curve_fails_is_sent_without() -> None:
    for curve, pictures in [(lambda: Curve(title="loss", values=(3.0, 2.0)), 1), (lambda: 1 // 0, 0)]:
        with smtp_server() as server:
            mail = Mail(url=Secret(f"smtp+plain://localhost:{server.port}"), to=("me@example.org",))
            with sending({"mail": mail}, curve=curve) as (sender, warnings):  # type: ignore[arg-type]
                sender.put(finding())
                ((_, message),) = server.mails.wait_for(bool)
        assert sum(part.get_content_type() == "image/png" for part in message.walk()) == pictures
        assert warnings == []


def test_a_warning_that_nobody_takes_stops_nothing() -> None:
    def refuse(trouble: str) -> None:
        raise OSError(trouble)

    with receiver(lambda request: Reply(404)) as server:
        hook = Webhook(url=Secret(server.url))
        sender = Sender(Policy(channels={"hook": Choice()}, group_s=0.0), {"hook": hook}, run="r", warn=refuse)
        sender.put(finding())
        server.turned_away.wait_for(bool)
        assert sender.close(WAIT_S) == {"hook": 1}


def test_the_names_of_channels_and_policy_must_agree() -> None:
    with pytest.raises(ValueError, match="must have the names of the policy's, a, got b"):
        Sender(Policy(channels={"a": Choice()}), {"b": Held()}, run="r")


def test_a_trial_says_what_came_of_it(tmp_path: Path) -> None:
    file = tmp_path / "alerts.log"
    with receiver(lambda request: Reply(404)) as server:
        outcomes = trial({"log": LogFile(file=str(file)), "slack": Slack(url=Secret(server.url))})
    assert {name: type(outcome).__name__ for name, outcome in outcomes.items()} == {
        "log": "Delivered",
        "slack": "Refused",
    }
    assert "only a test" in file.read_text(encoding="utf-8")


def test_no_file_that_is_written_holds_a_secret(tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "debug.log")
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with (
            receiver(lambda request: Reply(403, body=request.path.encode())) as server,
            smtp_server(login=("u", "w")) as post,
        ):
            config = read(
                {
                    "group_s": 0,
                    "log": {"file": str(tmp_path / "alerts.log")},
                    "slack": {"url": server.url},
                    "webhook": {"url": server.url, "secret": "hidden"},
                    "mail": {"url": f"smtp+plain://u:hidden@localhost:{post.port}", "to": ["me@example.org"]},
                    "apprise": {"urls": "no-such-thing://hidden"},
                }
            )
            (tmp_path / "run.json").write_text(strict_json.dumps({"alerts": config.to_json()}))
            sender = Sender(config.policy, config.channels, run="runs/demo", backoff=AT_ONCE)
            sender.put(finding(severity=CRITICAL))
            untold = sender.close(WAIT_S)
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
    assert untold == dict.fromkeys(["slack", "webhook", "mail", "apprise"], 1)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {file.name for file in files} == {"alerts.log", "debug.log", "run.json"}
    assert "refuses messages" in (tmp_path / "debug.log").read_text()
    assert not [file for file in files if b"hidden" in file.read_bytes()]


class Told(NamedTuple):
    """What a channel was told, read from the words of its messages."""

    alarms: Counter[tuple[str, str]]
    resolved: Counter[str]
    more: int


def told(texts: list[str]) -> Told:
    alarms: Counter[tuple[str, str]] = Counter()
    resolved: Counter[str] = Counter()
    for text in texts:
        for over, code, severity, step in re.findall(
            r"^\*?(resolved: )?([A-Z]{3}\d{3}) made-up  (\w+)  steps? (\d+)", text, flags=re.MULTILINE
        ):
            if over:
                resolved[f"{code}/{step}"] += 1
            else:
                alarms[f"{code}/{step}", severity] += 1
    more = sum(int(num.replace(",", "")) for text in texts for num in re.findall(r"and ([\d,]+) more finding", text))
    return Told(alarms, resolved, more)


def blocks_text(request: Request) -> str:
    blocks = strict_json.loads(request.body)["blocks"]
    return "\n".join(block["text"]["text"] if "text" in block else block["elements"][0]["text"] for block in blocks)


def number_told(texts: list[str]) -> int:
    heard = told(texts)
    return len({which for which, _ in heard.alarms}) + heard.more


NUM_FINDINGS, EVERY_CRITICAL, EVERY_CLOSED = 10_000, 40, 7


def storm(sender: Sender) -> None:
    """10,000 findings, 250 of them critical; every seventh is over by the time of the next."""
    for number in range(NUM_FINDINGS):
        code = f"AAA{number % 1000:03}"
        severity = CRITICAL if number % EVERY_CRITICAL == 0 else Severity.WARNING
        sender.put(finding(code, severity=severity, first=number))
        if number % EVERY_CLOSED == 0:
            sender.put(finding(code, severity=severity, first=number, last=number + 5, is_open=False))


def by_turns(up: int, down: int) -> Callable[[Request], Reply]:
    states = itertools.cycle([200] * up + [503] * down)
    lock = threading.Lock()

    def reply(_: Request) -> Reply:
        with lock:
            return Reply(next(states))

    return reply


@pytest.mark.parametrize(("down", "post"), [("by turns", "own"), ("first half", "own"), ("by turns", "aiosmtpd")])
def test_a_storm_of_findings_with_a_channel_that_is_down_half_of_the_time_is_told_as_promised(
    down: str, post: str
) -> None:
    if post == "aiosmtpd":
        pytest.importorskip("aiosmtpd", reason="aiosmtpd is not installed")
    mail_server = smtp_server if post == "own" else aiosmtpd_server
    mail_has_all = threading.Event()
    reply = by_turns(3, 3) if down == "by turns" else lambda request: Reply(200 if mail_has_all.is_set() else 503)
    limit, total = Limit(burst=5, refill_s=0.01), Limit(burst=8, refill_s=0.004)
    with receiver(reply) as hook, mail_server() as server:
        channels: dict[str, Channel] = {
            "slack": Slack(url=Secret(hook.url)),
            "mail": Mail(url=Secret(f"smtp+plain://127.0.0.1:{server.port}"), to=("me@example.org",)),
        }
        start_s = time.time()
        with sending(channels, limit=limit, total_limit=total, most_findings=20) as (sender, warnings):
            storm(sender)
            server.mails.wait_for(lambda mails: number_told([text_of(mail) for _, mail in mails]) == NUM_FINDINGS)
            mail_has_all.set()
            hook.kept.wait_for(lambda kept: number_told(list(map(blocks_text, kept))) == NUM_FINDINGS)
            assert sender.close(WAIT_S) == {}
        elapsed_s = time.time() - start_s
        texts = {
            "slack": list(map(blocks_text, hook.kept.all())),
            "mail": [text_of(mail) for _, mail in server.mails.all()],
        }
        assert hook.turned_away.all()

    critical = {(f"AAA{number % 1000:03}/{number}", "critical") for number in range(0, NUM_FINDINGS, EVERY_CRITICAL)}
    for messages in texts.values():
        heard = told(messages)
        assert {alarm for alarm in heard.alarms if alarm[1] == "critical"} == critical
        assert set(heard.alarms.values()) == {1}
        assert heard.alarms.total() + heard.more == NUM_FINDINGS
        assert set(heard.resolved) <= {which for which, _ in heard.alarms}
        assert set(heard.resolved.values()) <= {1}
        assert len(messages) <= limit.burst + elapsed_s / limit.refill_s + 1
    assert sum(map(len, texts.values())) <= total.burst + elapsed_s / total.refill_s + 2
    assert [warning for warning in warnings if "slack" not in warning] == []
    assert len(warnings) <= 1
