"""What a storm of findings costs a training, and whether people get the alerts that the policy promises.

A transformer trains on one core, while a thread brings 600 findings a second, as the doctor's thread would: a fortieth
critical, a seventh of them over by the time of the next. In every other turn they are told: to a Slack-style webhook
that is down half of the time, a second at a time, and to an SMTP server (aiosmtpd where it is installed), both in
another process. The order of the turns with and without alerts is drawn for each round; a turn with is divided by the
turn without of its round.

The policy is the default one. After each storm the sender is closed, as at the end of a training, and what has arrived
is compared with what `sonde.alerts.policy` promises: every finding once, by name or by number, critical ones first, and
no more messages than the limits allow. tests/alerts/test_sender.py has the same storm without the limits' long waits,
where every critical finding comes by name.

Usage: python benchmarks/alert_storm.py [--rounds 4] [--seconds 20] [--findings 10000]
"""

import argparse
import contextlib
import email
import email.policy
import http.server
import json
import random
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sonde.alerts.config import read
from sonde.alerts.policy import Policy
from sonde.alerts.sender import Sender
from sonde.core import strict_json
from sonde.core.findings import Finding, Severity

EVERY_CRITICAL, EVERY_CLOSED = 40, 7
HEAD = re.compile(r"^\*?(resolved: )?([A-Z]{3}\d{3}) made-up  (\w+)  steps? (\d+)", re.MULTILINE)
MORE = re.compile(r"and (\d+) more finding")


# The other side, in a process of its own.


def serve() -> None:
    """Take posts and mails; for each line on stdin say in one line what came since the last."""
    posts: list[str] = []
    mails: list[str] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_up = int(time.monotonic()) % 2 == 0
            if is_up:
                blocks = json.loads(body)["blocks"]
                posts.append("\n".join(b["text"]["text"] if "text" in b else b["elements"][0]["text"] for b in blocks))
            self.send_response(200 if is_up else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    name, port = _mail_server(mails)
    print(json.dumps({"hook": hook.server_address[1], "smtp": port, "by": name}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"slack": posts, "mail": mails}), flush=True)
        posts.clear()
        mails.clear()


def _mail_server(mails: list[str]) -> tuple[str, int]:
    def take(content: bytes) -> None:
        mail = email.message_from_bytes(content, policy=email.policy.default)
        body = mail.get_body(("plain",))
        mails.append(body.get_content().replace("\r\n", "\n") if body else "")

    try:
        from aiosmtpd import __version__
        from aiosmtpd.controller import Controller
    except ImportError:
        return "a plain SMTP server", _plain_mail_server(take)

    class Taking:
        async def handle_DATA(  # noqa: N802  # aiosmtpd's name
            self, server: Any, session: Any, envelope: Any
        ) -> str:
            take(envelope.content)
            return "250 taken"

    with socket.socket() as free:  # it takes no port 0
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    Controller(Taking(), hostname="127.0.0.1", port=port).start()
    return f"aiosmtpd {__version__}", port


def _plain_mail_server(take: Callable[[bytes], None]) -> int:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                verb = line[:4].upper()
                if verb == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = []
                    while (part := self.rfile.readline()) != b".\r\n":
                        lines.append(part.removeprefix(b"."))
                    take(b"".join(lines))
                self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


class Ports(NamedTuple):
    hook: int
    smtp: int
    by: str


class Post:
    """The other side, as this one sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ports = Ports(**self._line())

    def arrived(self) -> dict[str, list[str]]:
        """What came since the last call, by channel."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, list[str]] = self._line()
        return found

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())


# This side.


def plain_findings(number: int) -> list[dict[str, Any]]:
    """The storm as the doctor's process would send it."""
    found = []
    for step in range(number):
        finding = Finding(
            code=f"AAA{step % 1000:03}",
            name="made-up",
            severity=Severity.WARNING if step % EVERY_CRITICAL else Severity.CRITICAL,
            first_step=step,
            last_step=step,
            open=True,
            where=("blocks.3.attention.query.weight",),
            message="global gradient norm 417, 38 robust deviations above its last 200 steps (median 2.1)",
        ).to_json()
        found.append(strict_json.loads(strict_json.dumps(finding)))
        if step % EVERY_CLOSED == 0:
            found.append({**found[-1], "open": False, "last_step": step + 5})
    return found


class Told(NamedTuple):
    """What the channels were told in a storm, and what it cost."""

    texts: dict[str, list[str]]
    cpu_s: float
    """Of the alerts' own threads, while the training ran."""


@contextlib.contextmanager
def storm(findings: list[dict[str, Any]], seconds: float, put: Callable[[Finding], None]) -> Iterator[None]:
    """Findings all the while, from a thread."""
    over = threading.Event()

    def bring() -> None:
        start, done = time.monotonic(), 0
        while done < len(findings):
            due = min(len(findings), round((time.monotonic() - start) / (0.8 * seconds) * len(findings)))
            for plain in findings[done:due]:
                put(Finding.from_json(plain))
            done = due
            over.wait(0.02)

    thread = threading.Thread(target=bring, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


@contextlib.contextmanager
def alerts(post: Post, told: list[Told]) -> Iterator[Sender]:
    """Someone to be told; behind it what is left is told."""
    config = read(
        {
            "slack": {"url": f"http://127.0.0.1:{post.ports.hook}/"},
            "mail": {"url": f"smtp+plain://127.0.0.1:{post.ports.smtp}", "to": "me@example.org"},
        }
    )
    sender = Sender(config.policy, config.channels, run="runs/storm", warn=lambda trouble: None)
    before_s = _alerts_cpu_s()
    yield sender
    cpu_s = _alerts_cpu_s() - before_s
    untold = sender.close(60.0)
    assert not untold, untold
    told.append(Told(post.arrived(), cpu_s))


def _alerts_cpu_s() -> float:
    ids = [thread.native_id for thread in threading.enumerate() if thread.name.startswith("sonde-alerts")]
    return sum(int(Path(f"/proc/self/task/{number}/schedstat").read_text().split()[0]) for number in ids) * 1e-9


def broken_promises(texts: list[str], number: int) -> str:
    """What of the policy's promises a channel did not get; nothing where it got all."""
    alarms: Counter[tuple[str, str]] = Counter()
    resolved: Counter[str] = Counter()
    for text in texts:
        for is_over, code, severity, step in HEAD.findall(text):
            if is_over:
                resolved[f"{code}/{step}"] += 1
            else:
                alarms[f"{code}/{step}", severity] += 1
    more = sum(int(count) for text in texts for count in MORE.findall(text))
    num_critical = len(range(0, number, EVERY_CRITICAL))
    named = Counter(severity for _, severity in alarms)
    told = {which for which, _ in alarms}
    troubles = {
        f"{named['warning']} warnings by name, and only {named['critical']} critical ones": named["warning"] > 0
        and named["critical"] < num_critical,
        f"told twice {[a for a, times in alarms.items() if times > 1][:3]}": max(alarms.values(), default=0) > 1,
        f"told by name or number {alarms.total() + more} of {number}": alarms.total() + more != number,
        "over without an alarm": not set(resolved) <= told,
        "over twice": max(resolved.values(), default=0) > 1,
    }
    return "; ".join(trouble for trouble, is_so in troubles.items() if is_so)


def training() -> Callable[[], None]:
    """A step of a small transformer on one core."""
    import torch
    from torch.nn import functional

    from sonde.demo import corpus
    from sonde.demo.model import Shape, Transformer, initialise

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    text = corpus.text()
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([number[character] for character in text])
    model = Transformer(Shape(vocabulary=len(number), width=128, depth=4, heads=4))
    initialise(model, generator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    context = model.shape.context

    def step() -> None:
        starts = torch.randint(len(ids) - context, (16, 1), generator=generator)
        windows = ids[starts + torch.arange(context + 1)]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    return step


def _ignore(finding: Finding) -> None:
    pass


def main() -> None:
    from measure import Figure, Queue, middle, print_figures, print_machine

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a turn, about")
    parser.add_argument("--findings", type=int, default=10_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
        return
    print_machine(("torch",), Path.cwd())
    step, post, findings = training(), Post(), plain_findings(args.findings)
    warm = time.perf_counter()
    for _ in range(10):
        step()
    num_steps = max(1, round(args.seconds / ((time.perf_counter() - warm) / 10)))

    queue = Queue(threading.main_thread())

    def turn() -> tuple[float, float]:
        """Seconds, and those less what the training stood in the kernel's queue for a core."""
        start, queued = time.perf_counter(), queue.seconds()
        for _ in range(num_steps):
            step()
        took = time.perf_counter() - start
        return took, took - (queue.seconds() - queued)

    ratios: list[float] = []
    unqueued: list[float] = []
    stormy_s: list[float] = []
    told: list[Told] = []
    broken: list[str] = []
    order = random.Random(0)
    for _ in range(args.rounds):
        took = {}
        for stormy in order.sample([False, True], 2):
            with contextlib.ExitStack() as stack:
                put = stack.enter_context(alerts(post, told)).put if stormy else _ignore
                stack.enter_context(storm(findings, args.seconds, put))
                took[stormy] = turn()
        messages = {name: len(texts) for name, texts in told[-1].texts.items()}
        for name, texts in told[-1].texts.items():
            if trouble := broken_promises(texts, args.findings):
                broken.append(f"{name}: {trouble}")
            if messages[name] > Policy().limit.burst + 1:  # and the last
                broken.append(f"{name}: {messages[name]} messages")
        ratios.append(took[True][0] / took[False][0])
        stormy_s.append(took[True][0])
        unqueued.append(took[True][1] / took[False][1])
        print(
            f"- {num_steps} steps: {took[False][0]:.2f} s without, {took[True][0]:.2f} s with "
            f"(unqueued {took[False][1]:.2f} and {took[True][1]:.2f}); messages {messages}",
            flush=True,
        )
    post.close()
    print_figures(
        f"A storm of {args.findings:,} findings a turn, a webhook that is down half of the time, {post.ports.by}",
        [
            Figure(what="training time, with ÷ without", value=middle(ratios), at_most=1.01, note="median of rounds"),
            Figure(what="the same, worst round", value=max(ratios)),
            Figure(what="the same less the queue for a core", value=middle(unqueued), note="median of rounds"),
            Figure(
                what="of the alerts' threads, seconds of a core ÷ seconds of training",
                value=middle([storm.cpu_s / took for storm, took in zip(told, stormy_s, strict=True)]),
            ),
            Figure(what="promises that were not kept", value=len(broken), at_most=0, note="; ".join(broken)[:300]),
        ],
    )


if __name__ == "__main__":
    main()
