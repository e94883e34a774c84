"""Each channel with a real server on loopback: what arrives, what is worth another attempt, and what is not."""

import base64
import dataclasses
import json
import logging
import os
import resource
import socket
import ssl
import stat
import threading
import traceback
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.alerts.made_up import BULLETIN
from tests.alerts.servers import HANG_UP, Receiver, Reply, dripping, receiver, smtp_server, text_of

from sonde.alerts.channels.apprise import Apprise
from sonde.alerts.channels.catalogue import DOOR
from sonde.alerts.channels.channel import Delivered, Outcome, Refused, TryAgain
from sonde.alerts.channels.http import retry_after_s
from sonde.alerts.channels.log_file import LogFile
from sonde.alerts.channels.mail import Mail
from sonde.alerts.channels.signature import verify
from sonde.alerts.channels.slack import Slack
from sonde.alerts.channels.webhook import Webhook
from sonde.alerts.messages import payload, plain, slack
from sonde.core import strict_json
from sonde.core.optional import available
from sonde.core.secret import Secret


def slack_at(server: Receiver, timeout_s: float = 10.0) -> Slack:
    return Slack(url=Secret(server.url), timeout_s=timeout_s)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_catalogue_has_every_channel_of_the_folder() -> None:
    folder = Path(DOOR.load("log").__module__.replace(".", "/")).parent
    assert folder == Path("sonde/alerts/channels")
    assert [DOOR.load(name).__name__ for name in DOOR.names()] == ["Apprise", "LogFile", "Mail", "Slack", "Webhook"]


def test_slack_gets_blocks() -> None:
    with receiver() as server:
        assert slack_at(server).send(BULLETIN) == Delivered()
        (request,) = server.kept.all()
    assert json.loads(request.body) == slack.payload(BULLETIN)
    assert (request.path, request.headers["Content-Type"]) == ("/services/T0/B0/hidden", "application/json")


def test_a_webhook_gets_json_that_its_secret_vouches_for() -> None:
    with receiver() as server:
        assert Webhook(url=Secret(server.url), secret=Secret("key")).send(BULLETIN) == Delivered()
        (request,) = server.kept.all()
    assert strict_json.loads(request.body) == payload.payload(BULLETIN)
    assert request.headers["X-Sonde-Delivery"] == BULLETIN.id
    timestamp, signature = request.headers["X-Sonde-Timestamp"], request.headers["X-Sonde-Signature"]
    now_s = float(timestamp)
    assert verify(Secret("key"), request.body, timestamp=timestamp, signature=signature, now_s=now_s)
    for secret, body, when, sent in [
        ("kex", request.body, timestamp, signature),
        ("key", request.body + b" ", timestamp, signature),
        ("key", request.body, str(int(timestamp) + 1), signature),
        ("key", request.body, timestamp, signature[:-1]),
        ("key", request.body, timestamp, "sha256=é"),
        ("key", request.body, "-1", signature),
        ("key", request.body, "٣", signature),
    ]:
        assert not verify(Secret(secret), body, timestamp=when, signature=sent, now_s=now_s)
    assert not verify(Secret("key"), request.body, timestamp=timestamp, signature=signature, now_s=now_s + 301)


def test_a_webhook_without_a_secret_is_not_signed() -> None:
    with receiver() as server:
        Webhook(url=Secret(server.url)).send(BULLETIN)
        (request,) = server.kept.all()
    assert not {"X-Sonde-Signature", "X-Sonde-Timestamp"} & set(request.headers)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(204), Delivered()),
        (Reply(500), TryAgain("HTTP 500 (ok)")),
        (Reply(503, {"Retry-After": "7"}), TryAgain("HTTP 503 (ok)", 7.0)),
        (Reply(429, {"Retry-After": "30"}, b"rate_limited"), TryAgain("HTTP 429 (rate_limited)", 30.0)),
        (Reply(408, body=b"Timeout!"), TryAgain("HTTP 408")),
        (Reply(400, body=b"invalid_payload"), Refused("HTTP 400 (invalid_payload)")),
        (Reply(404, body=b"no_service"), Refused("HTTP 404 (no_service)")),
        (Reply(302, {"Location": "http://localhost:1/elsewhere"}, b""), Refused("HTTP 302")),
        (Reply(403, body=b"POST /services/T0/B0/hidden"), Refused("HTTP 403")),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Reply) else "",
)
def test_what_an_answer_means(reply: Reply, outcome: Outcome) -> None:
    with receiver(lambda request: reply) as server:
        assert slack_at(server).send(BULLETIN) == outcome


def test_a_server_that_hangs_up_or_is_not_there_is_tried_again() -> None:
    with receiver(lambda request: Reply(0)) as server:
        assert isinstance(slack_at(server).send(BULLETIN), TryAgain)
    outcome = Slack(url=Secret(f"http://localhost:{unused_port()}/hidden")).send(BULLETIN)
    assert outcome == TryAgain("ConnectionRefusedError: Connection refused")


def test_a_server_that_does_not_answer_in_time_is_tried_again() -> None:
    released = threading.Event()

    def late(_: object) -> Reply:
        released.wait(60)
        return Reply(0)

    with receiver(late) as server:
        assert slack_at(server, timeout_s=0.05).send(BULLETIN) == TryAgain("it does not answer in time")
        released.set()


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 2"])
def test_an_answer_that_drips_is_not_waited_for(beginning: bytes) -> None:
    with dripping(beginning) as port:
        outcome = Webhook(url=Secret(f"http://localhost:{port}/hidden"), timeout_s=0.5).send(BULLETIN)
    assert outcome == TryAgain("it does not answer in time")


def test_tls_that_drips_is_not_waited_for() -> None:
    with dripping(b"\x16\x03\x03\x40\x00") as port:
        outcome = Webhook(url=Secret(f"https://localhost:{port}/hidden"), timeout_s=0.5).send(BULLETIN)
    assert outcome == TryAgain("it does not answer in time")


@pytest.mark.parametrize("rest", [b"X-Slow: ", b"Content-Length: 1000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
def test_what_drips_after_the_status_changes_nothing_of_it(rest: bytes) -> None:
    with dripping(b"HTTP/1.1 200 OK\r\n" + rest) as port:
        outcome = Webhook(url=Secret(f"http://localhost:{port}/hidden"), timeout_s=0.5).send(BULLETIN)
    assert outcome == Delivered()
    with dripping(b"HTTP/1.1 403 Forbidden\r\n" + rest) as port:
        outcome = Webhook(url=Secret(f"http://localhost:{port}/hidden"), timeout_s=0.5).send(BULLETIN)
    assert isinstance(outcome, Refused)
    assert "HTTP 403" in outcome.reason


@pytest.mark.parametrize("scheme", ["smtp+plain", "smtps"])
def test_a_mail_server_that_drips_is_not_waited_for(scheme: str) -> None:
    with dripping(b"\x16\x03\x03\x40\x00" if scheme == "smtps" else b"220-") as port:
        mail = Mail(url=Secret(f"{scheme}://localhost:{port}"), to=("me@example.org",), timeout_s=0.2)
        assert mail.send(BULLETIN) == TryAgain("it does not answer in time")


@pytest.mark.parametrize("login", ["user:pass", "us%40er:p%3Aa%2Fss%C3%A9", "user", ":pass"])
def test_a_login_in_the_address_is_sent_as_one(login: str) -> None:
    with receiver() as server:
        url = Secret(server.url.replace("://", f"://{login}@"))
        assert Webhook(url=url).send(BULLETIN) == Delivered()
        assert Slack(url=url).send(BULLETIN) == Delivered()
        requests = server.kept.all()
    user, _, password = login.partition(":")
    wanted = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    for request in requests:
        assert request.headers["Authorization"] == f"Basic {wanted}"
        assert request.path == "/services/T0/B0/hidden"
        assert "@" not in request.headers["Host"]


@pytest.mark.parametrize(
    "url", ["https://user:pass-hidden/x@host/", "https://user:pass-hidden\u2100@host/", "https://[hidden"]
)
def test_an_address_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="must begin with https://") as caught:
        Webhook(url=Secret(url))
    assert "hidden" not in "".join(traceback.format_exception(caught.value))


def test_a_certificate_is_checked(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(tls=tls) as server:
        assert slack_at(server).send(BULLETIN) == Delivered()
        monkeypatch.delenv("SSL_CERT_FILE")
        outcome = slack_at(server).send(BULLETIN)
    assert isinstance(outcome, Refused)
    assert "certificate" in outcome.reason


@pytest.mark.parametrize("url", ["", "hooks.slack.com/T0", "file:///etc/passwd", "https://", "ftp://a.b/c"])
def test_only_web_addresses_are_taken(url: str) -> None:
    for make in (lambda: Slack(url=Secret(url)), lambda: Webhook(url=Secret(url))):
        with pytest.raises(ValueError, match="must begin with https://"):
            make()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 0.0), ("7", 7.0), ("99999999", 3600.0), ("-3", 0.0), ("Wed, 31 Dec 1969 23:00:00 GMT", 0.0), ("1.5", 0.0)],
)
def test_retry_after_is_kept_within_reason(header: str | None, seconds: float) -> None:
    assert retry_after_s(header, now_s=0.0) == seconds


def test_a_log_file_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "new" / "alerts.log"
    channel = LogFile(file=str(file))
    assert [channel.send(BULLETIN), channel.send(BULLETIN)] == [Delivered(), Delivered()]
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines == plain.log_lines(BULLETIN) * 2
    told = (*BULLETIN.notice.alarms, *BULLETIN.notice.resolved)
    assert all(sum(f"{finding.code} {finding.name}" in line for line in lines) == 2 for finding in told)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_log_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert isinstance(LogFile(file=str(tmp_path)).send(BULLETIN), Refused)
    assert isinstance(LogFile(file=str(tmp_path / "file" / "below")).send(BULLETIN), Refused)


def test_a_log_file_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    start_up = tmp_path / "start-up"
    start_up.write_text("true\n")
    (tmp_path / "link").symlink_to(start_up)
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("link", "it is a link"), ("pipe", "no regular file")):
        outcome = LogFile(file=str(tmp_path / name)).send(BULLETIN)
        assert isinstance(outcome, Refused)
        assert reason in outcome.reason
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert isinstance(LogFile(file=str(tmp_path / "pipe")).send(BULLETIN), Refused)
    finally:
        os.close(reader)
    assert start_up.read_text() == "true\n"


def test_texts_of_a_run_cannot_break_the_lines_of_a_log_file(tmp_path: Path) -> None:
    hostile = dataclasses.replace(BULLETIN, run="runs/x\ntouch here\n", host="h\x1b[2J\u202e")
    assert LogFile(file=str(tmp_path / "log")).send(hostile) == Delivered()
    text = (tmp_path / "log").read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(plain.log_lines(BULLETIN))
    assert "runs/x\\ntouch here\\n on h\\x1b[2J\\u202e" in text
    assert text.replace("\n", "").isprintable()


def test_a_full_disk_is_tried_again(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = tmp_path / "log"
    file.write_bytes(b"x" * 4096)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # Python ignores the signal
    try:
        outcome = LogFile(file=str(file)).send(BULLETIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert outcome == TryAgain(f"{file} cannot be written: File too large")


def mail_to(port: int, scheme: str = "smtp+plain", login: str = "", to: tuple[str, ...] = ("me@example.org",)) -> Mail:
    return Mail(url=Secret(f"{scheme}://{login}localhost:{port}"), to=to)


def test_mail_goes_through_starttls_with_a_login(tls: ssl.SSLContext) -> None:
    with smtp_server(starttls=tls, login=("sonde@example.org", "p@ss:word")) as server:
        assert mail_to(server.port, "smtp", "sonde%40example.org:p%40ss%3Aword@").send(BULLETIN) == Delivered()
        ((receivers, mail),) = server.mails.all()
        heard = server.heard.all()
    assert receivers == ["me@example.org"]
    assert (mail["From"], mail["Subject"]) == ("sonde@example.org", plain.title(BULLETIN))
    assert text_of(mail) == plain.text(BULLETIN)
    assert heard.index("STARTTLS") < next(i for i, line in enumerate(heard) if line.startswith("AUTH"))


def test_mail_goes_through_tls(tls: ssl.SSLContext) -> None:
    with smtp_server(tls=tls, login=("user", "word")) as server:
        assert mail_to(server.port, "smtps", "user:word@").send(BULLETIN) == Delivered()
        ((_, mail),) = server.mails.all()
    assert mail["From"] == "sonde@localhost"


def test_nothing_is_said_to_a_server_without_starttls_or_with_a_false_certificate(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with smtp_server(login=("user", "word")) as server:
        assert isinstance(mail_to(server.port, "smtp", "user:word@").send(BULLETIN), Refused)
        assert not any(line.startswith(("AUTH", "MAIL")) for line in server.heard.all())
    monkeypatch.delenv("SSL_CERT_FILE")
    with smtp_server(starttls=tls, login=("user", "word")) as server:
        outcome = mail_to(server.port, "smtp", "user:word@").send(BULLETIN)
        assert not any(line.startswith(("AUTH", "MAIL")) for line in server.heard.all())
    assert isinstance(outcome, Refused)
    assert "certificate" in outcome.reason


@pytest.mark.parametrize(
    ("start", "reply", "outcome"),
    [
        ("greeting", "421 later", TryAgain("the server says 421 (connect)")),
        ("greeting", "554 go away", Refused("the server says 554 (connect)")),
        ("MAIL", "451 busy", TryAgain("the server says 451 (senderrefused)")),
        ("MAIL", "550 no", Refused("the server says 550 (senderrefused)")),
        ("RCPT", "450 full", TryAgain("no receiver was accepted: me@example.org (450)")),
        ("RCPT", "550 unknown", Refused("no receiver was accepted: me@example.org (550)")),
        (".", "452 no room", TryAgain("the server says 452 (data)")),
        (".", "554 spam", Refused("the server says 554 (data)")),
        (".", HANG_UP, TryAgain("the server closed the connection")),
        ("QUIT", "500 what?", Delivered()),
        ("QUIT", HANG_UP, Delivered()),
    ],
)
def test_what_a_reply_of_the_mail_server_means(start: str, reply: str, outcome: Outcome) -> None:
    with smtp_server(replies=lambda line: reply if line.upper().startswith(start.upper()) else None) as server:
        assert mail_to(server.port).send(BULLETIN) == outcome


def test_a_wrong_password_is_refused_and_a_server_that_is_not_there_is_tried_again() -> None:
    with smtp_server(login=("user", "word")) as server:
        outcome = mail_to(server.port, login="user:wrong@").send(BULLETIN)
    assert outcome == Refused("the server says 535 (authentication)")
    assert mail_to(unused_port()).send(BULLETIN) == TryAgain("ConnectionRefusedError: Connection refused")


def test_a_receiver_who_is_refused_does_not_make_the_others_be_told_twice() -> None:
    with smtp_server(replies=lambda line: "550 unknown" if "gone@" in line else None) as server:
        outcome = mail_to(server.port, to=("me@example.org", "gone@example.org")).send(BULLETIN)
        ((receivers, _),) = server.mails.all()
    assert outcome == Delivered("refused by the server: gone@example.org")
    assert receivers == ["me@example.org"]


@pytest.mark.parametrize(
    "url", ["", "mail.example.org", "smtp://", "http://a.b", "smtp://a.b:port", "smtp://a.b:99999"]
)
def test_only_addresses_of_mail_servers_are_taken(url: str) -> None:
    with pytest.raises(ValueError, match="must be smtps://"):
        Mail(url=Secret(url), to=("me@example.org",))


@pytest.mark.parametrize("address", ["me", "a@b@c", "me@example.org\nBcc: you@example.org", "a b@c.d", "a@b.c,d@e.f"])
def test_only_mail_addresses_are_taken(address: str) -> None:
    with pytest.raises(ValueError, match="is no mail address"):
        Mail(url=Secret("smtps://a.b"), to=(address,))


def test_a_password_is_not_sent_in_the_clear_to_another_machine() -> None:
    with pytest.raises(ValueError, match="unencrypted"):
        Mail(url=Secret("smtp+plain://user:word@example.org"), to=("me@example.org",))


@pytest.mark.skipif(available("apprise"), reason="apprise is installed")
def test_without_apprise_the_channel_says_how_to_install_it() -> None:
    outcome = Apprise(urls=(Secret("json://localhost"),)).send(BULLETIN)
    assert isinstance(outcome, Refused)
    assert "pip install 'sonde[alerts]'" in outcome.reason


@pytest.mark.skipif(not available("apprise"), reason="apprise is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own, at import
def test_apprise_sends_plain_text_and_its_log_holds_no_address(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with receiver() as server:
        good = Secret(server.url.replace("http://", "json://"))
        assert Apprise(urls=(good,)).send(BULLETIN) == Delivered()
        (request,) = server.kept.all()
        said = json.loads(request.body)
        assert (said["title"], said["type"]) == (plain.title(BULLETIN), "failure")
        assert "exploding-gradients" in said["message"]
        unknown, dead = Secret("no-such-thing://hidden"), Secret(f"json://localhost:{unused_port()}/hidden")
        assert Apprise(urls=(unknown,)).send(BULLETIN) == Refused("address 1 is not one that apprise knows")
        assert Apprise(urls=(unknown, dead)).send(BULLETIN) == TryAgain(
            "address 1 is not one that apprise knows, address 2 could not be reached"
        )
        assert Apprise(urls=(dead, good)).send(BULLETIN) == Delivered("address 1 could not be reached")
    assert "hidden" not in caplog.text
