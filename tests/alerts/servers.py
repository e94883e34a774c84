"""Real servers on loopback that do as they are told: an HTTP receiver, and an SMTP server with TLS and a login."""

import base64
import email
import email.policy
import http.server
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

WAIT_S = 60.0  # until a test gives up; none takes as long


HANG_UP = ""


class Request(NamedTuple):
    path: str
    headers: Mapping[str, str]
    body: bytes


class Reply(NamedTuple):
    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b"ok"


class Kept:
    """What has come, and a way to wait for more."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._changed = threading.Condition()

    def add(self, item: Any) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def all(self) -> list[Any]:
        with self._changed:
            return list(self._items)

    def wait_for(self, wanted: Callable[[list[Any]], bool]) -> list[Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: wanted(self._items), WAIT_S), f"only {len(self._items)} came"
            return list(self._items)


class Receiver(NamedTuple):
    """An HTTP server, and the requests that it has answered with 2xx (`kept`) or otherwise (`turned_away`)."""

    url: str
    kept: Kept
    turned_away: Kept


@contextmanager
def receiver(
    reply: Callable[[Request], Reply] = lambda request: Reply(), tls: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    kept, turned_away = Kept(), Kept()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = Request(self.path, dict(self.headers), body)
            answer = reply(request)
            (kept if 200 <= answer.status < 300 else turned_away).add(request)
            if answer.status == 0:  # hang up
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *args: object) -> None:
            pass

    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler), tls) as port:
        yield Receiver(f"{'https' if tls else 'http'}://localhost:{port}/services/T0/B0/hidden", kept, turned_away)


@contextmanager
def dripping(beginning: bytes) -> Iterator[int]:
    """A server that says this at once and then a byte now and then, for longer than anybody should wait."""
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                self.request.sendall(beginning)
                for _ in range(200):
                    if over.wait(0.05):
                        return
                    self.request.sendall(b"a")
            except OSError:
                pass  # the other side has had enough

    class Threading(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with serving(Threading(("127.0.0.1", 0), Handler), None) as port:
        yield port
        over.set()


class Server(NamedTuple):
    """An SMTP server, the mails it has taken, and the verbs it has heard (login details as they came)."""

    port: int
    mails: Kept
    heard: Kept


@contextmanager
def smtp_server(
    *,
    tls: ssl.SSLContext | None = None,
    starttls: ssl.SSLContext | None = None,
    login: tuple[str, str] | None = None,
    replies: Callable[[str], str | None] = lambda line: None,
) -> Iterator[Server]:
    """RFC 5321, as far as a client of one message goes.

    `replies` may answer a line itself, "greeting" and "." (the end of the message) among them.
    """
    mails, heard = Kept(), Kept()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.secure, self.known, self.receivers = tls is not None, login is None, list[str]()
            self.file = self.request.makefile("rb")
            try:
                self.say(replies("greeting") or "220 test")
                while line := self.file.readline():
                    verb = line.decode().strip()
                    heard.add(verb)
                    if not self.answer(verb):
                        return
            finally:
                self.file.close()
                self.request.close()

        def say(self, line: str) -> None:
            self.request.sendall(line.encode() + b"\r\n")

        def answer(self, line: str) -> bool:
            verb = line.upper()
            own = replies(line)
            if own == HANG_UP:
                return False
            if own is not None:
                self.say(own)
            elif verb.startswith("EHLO"):
                offers = ["test"]
                offers += ["STARTTLS"] if starttls and not self.secure else []
                offers += ["AUTH PLAIN"] if login else []
                self.say(
                    "\r\n".join(f"250{' ' if i == len(offers) - 1 else '-'}{offer}" for i, offer in enumerate(offers))
                )
            elif verb == "STARTTLS" and starttls:
                self.say("220 go on")
                self.file.close()
                self.request = starttls.wrap_socket(self.request, server_side=True)
                self.file, self.secure = self.request.makefile("rb"), True
            elif verb.startswith("AUTH PLAIN ") and login:
                _, user, password = base64.b64decode(line.split()[2]).decode().split("\0")
                self.known = (user, password) == login
                self.say("235 welcome" if self.known else "535 who are you?")
            elif not self.known and verb != "QUIT":
                self.say("530 log in first")
            elif verb.startswith("RCPT TO:"):
                self.receivers.append(line[8:].strip("<>"))
                self.say("250 ok")
            elif verb == "DATA":
                self.say("354 go on")
                lines = []
                while (part := self.file.readline().rstrip(b"\r\n")) != b".":
                    lines.append(part.removeprefix(b"."))
                own = replies(".")
                if own == HANG_UP:
                    return False
                if own is None:
                    mails.add(
                        (self.receivers, email.message_from_bytes(b"\r\n".join(lines), policy=email.policy.default))
                    )
                self.say(own or "250 taken")
            elif verb == "QUIT":
                self.say("221 bye")
                return False
            else:
                self.say("250 ok")
            return True

    class Threading(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # clients that hang up in the middle are part of the tests

    with serving(Threading(("127.0.0.1", 0), Handler), tls) as port:
        yield Server(port, mails, heard)


@contextmanager
def aiosmtpd_server() -> Iterator[Server]:
    """Somebody else's SMTP server: what both agree on is the protocol."""
    from aiosmtpd.controller import Controller

    mails = Kept()

    class Taking:
        async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
            mails.add((envelope.rcpt_tos, email.message_from_bytes(envelope.content, policy=email.policy.default)))
            return "250 taken"

    with socket.socket() as free:  # it takes no port 0
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    controller = Controller(Taking(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield Server(port, mails, Kept())
    finally:
        controller.stop()


def text_of(mail: EmailMessage) -> str:
    body = mail.get_body(("plain",))
    assert body is not None
    content: str = body.get_content()
    return content.replace("\r\n", "\n")


@contextmanager
def serving(server: socketserver.TCPServer, tls: ssl.SSLContext | None) -> Iterator[int]:
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]  # refused certificates
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate of localhost, signed by itself: the file to trust, and the server's side."""
    file, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    extra = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(file)]
    subprocess.run([*command.split(), *extra], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return file, context
