"""Secrets that are given to twenty trainings by every door, and looked for in every byte that came of them."""

import contextlib
import html
import io
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
import torch
from tests.alerts.servers import receiver
from tests.alerts.trainings import Diverging
from tests.core.secret_forms import ARGUMENTS, SENTENCES, SETTINGS, Holder, Source

import sonde
from sonde.cli.main import main
from sonde.core.secret import HIDDEN
from sonde.integrations.hosted import Hosted
from sonde.store.importing.imports import import_logs

pytestmark = pytest.mark.filterwarnings("ignore")  # of W&B and TensorBoard

NUM_RECORDED = 11
SCRIPT = """
import os, sys, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
raise RuntimeError(f"cannot log in with password={sys.argv[-1]} or " + os.environ["DEPLOY_SECRET"])
"""


class Planted:
    """Secrets, by where they were planted."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.secrets: dict[str, str] = {}
        self.words: list[str] = []
        for form, make in ARGUMENTS.items():
            secret, words = make(source)
            self.words += words
            self.secrets[f"argument: {form}"] = secret

    def new(self, place: str, kind: Callable[[Source], str] = Source.password) -> str:
        secret = self.secrets[place] = kind(self.source)
        return secret

    def config(self, place: str) -> dict[Any, Any]:
        """Every kind of settings, each with a secret of its own."""
        settings: dict[Any, Any] = {"lr": 0.1, "holder": Holder(self.new(f"{place}: an object"))}
        for form, make in SETTINGS.items():
            settings[form] = make(self.new(f"{place}: {form}"))
        return settings

    def sentence(self, place: str, form: str) -> str:
        return SENTENCES[form](self.new(f"{place}: {form}"))


class Recorded(NamedTuple):
    """What there is to search."""

    folder: Path
    runs: list[Path]
    texts: dict[str, str]
    """Printed, logged and sent."""
    secrets: dict[str, str]


def printed(*words: object) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), contextlib.suppress(SystemExit):
        main([str(word) for word in words])
    return text.getvalue()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder, elsewhere = tmp_path_factory.mktemp("recorded"), tmp_path_factory.mktemp("elsewhere")
    planted = Planted(Source(random.randrange(2**32)))
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger("sonde").addHandler(handler)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch, receiver() as hook:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["train.py", *planted.words])
        for name, value in {"SONDE_CONSOLE": "quiet", "SONDE_DOCTOR": "thread", "WANDB_MODE": "offline"}.items():
            patch.setenv(name, value)
        patch.setenv("HOME", str(elsewhere))
        # Nothing but the variable's name tells these two.
        variable = planted.new("environment: a password")
        patch.setenv("DEPLOY_SECRET", variable)
        patch.setenv("DATABASE_URL", f"postgres://bob:{planted.new('environment: of an address')}@db/x")
        address = planted.secrets["environment: of an address"]

        runs = by_record(folder, planted, [variable, address])
        runs += by_watch(folder, planted, variable, hook.url, patch)
        runs += by_import(folder, elsewhere, planted)
        runs.append(by_script(folder, planted))
        texts = {f"{path.name} {verb}": printed(verb, path, *more) for path in runs for verb, *more in VERBS}
        texts["compare"] = printed("compare", *runs[:3], "--html", folder / "compare.html")
        texts["runs"], texts["config"] = printed("runs", folder, "--json"), printed("config", runs[-1], "--json")
        texts |= {f"webhook {i}": request.body.decode() for i, request in enumerate(hook.kept.all())}
    logging.getLogger("sonde").removeHandler(handler)
    torch.set_num_threads(threads)
    texts["log"] = log.getvalue()
    return Recorded(folder, runs, texts, planted.secrets)


VERBS: list[tuple[object, ...]] = [
    ("show",),
    ("show", "--json"),
    ("diagnose", "--json"),
    ("report", "--html"),
    ("report", "--md"),
    ("report", "--html", "--out", "-"),
    ("export", "--to", "jsonl"),
    ("export", "--to", "parquet"),
]


def by_record(folder: Path, planted: Planted, variables: list[str]) -> list[Path]:
    runs = []
    for number in range(NUM_RECORDED):
        path = folder / f"record-{number}"
        place = f"record {number}"
        with contextlib.suppress(ValueError), sonde.record(path, config=planted.config(place)) as run:
            for step in range(3):
                run.log({"loss": 1.0 / (step + 1)}, step=step)
            for form in SENTENCES:
                run.event("note", step=2, data={"text": planted.sentence(place, form), "argv": planted.words})
            run.event("note", data={"text": " or ".join(variables), "quoted": [quote(word) for word in variables]})
            raise ValueError("x" * (440 + 4 * number) + planted.sentence(f"{place}, ending", "keyword"))
        runs.append(path)
    sonde.record(folder / "named", name=f"trial with token={planted.new('name')}", config={"a": variables}).close()
    again = planted.config("resumed")
    sonde.record(runs[0], config=again).close()
    return [*runs, folder / "named"]


def by_watch(folder: Path, planted: Planted, variable: str, hook: str, patch: pytest.MonkeyPatch) -> list[Path]:
    patch.setenv("SONDE_WEBHOOK", hook)
    patch.setenv("SONDE_WEBHOOK_SECRET", planted.new("settings: of a channel"))
    (folder / "sonde.toml").write_text(
        "[alerts]\ngroup_s = 0.01\nlimit.refill_s = 0.01\ntotal_limit.refill_s = 0.01\n"
        '[alerts.log]\nfile = "alerts.log"\n'
    )
    training = Diverging()
    watch = sonde.watch(
        training.model,
        training.optimizer,
        run=folder / "watched",
        config={**planted.config("watch"), "note": variable},
        sinks=["tensorboard", "wandb"],
    )
    watch.not_measured("act/*", planted.sentence("not measured", "namespace"))
    training.train(watch, 40)
    watch.close()
    training = Diverging()
    hosted = Hosted(partial(sonde.watch, config=planted.config("trainer")), folder / "hosted")
    hosted.begin(training.model, training.optimizer, state={})
    assert hosted.watch is not None
    training.train(hosted.watch, 5)
    hosted.end(RuntimeError(planted.sentence("trainer, ending", "wrapped")))
    training = Diverging()
    config = planted.config("crashed")
    with (
        contextlib.suppress(RuntimeError),
        sonde.watch(
            training.model, training.optimizer, run=folder / "crashed", config=config, sinks=["tensorboard"]
        ) as watch,
    ):
        training.train(watch, 5)
        raise RuntimeError(f"{variable} was wrong: {planted.sentence('crashed, ending', 'address')}")
    (folder / "sonde.toml").unlink()
    return [folder / "watched", folder / "hosted", folder / "crashed"]


def by_import(folder: Path, elsewhere: Path, planted: Planted) -> list[Path]:
    logged = elsewhere / "mlruns" / "0" / "abc"
    for kind, files in {
        "metrics": {"loss": "1700000000000 1.5 0\n1700000001000 1.2 1\n"},
        "params": {"lr": "0.1", "api_key": planted.new("MLflow"), "args": planted.sentence("MLflow", "namespace")},
    }.items():
        (logged / kind).mkdir(parents=True)
        for name, text in files.items():
            (logged / kind / name).write_text(text)
    (logged / "meta.yaml").write_text("run_name: tidy-fish\n")
    import_logs("mlflow", elsewhere / "mlruns", folder / "from-mlflow")

    boards = pytest.importorskip("torch.utils.tensorboard")
    board = boards.SummaryWriter(str(elsewhere / "board"))
    for step in range(3):
        board.add_scalar("loss", 1.0 / (step + 1), step)
    board.add_text("args", planted.sentence("TensorBoard", "dictionary"))
    board.add_text("password", planted.new("TensorBoard"))
    board.close()
    import_logs("tensorboard", elsewhere / "board", folder / "from-tensorboard")

    csv = elsewhere / f"log token={planted.new('CSV')}.csv"
    csv.write_text("step,loss\n0,3.5\n1,2.5\n")
    import_logs("csv", csv, folder / "from-csv")

    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    theirs = wandb.init(dir=str(elsewhere), config=planted.config("W&B"), settings=wandb.Settings(silent=True))
    theirs.log({"loss": 1.0})
    theirs.finish()
    wandb.teardown()
    import_logs("wandb", elsewhere / "wandb", folder / "from-wandb")
    return [folder / f"from-{kind}" for kind in ("mlflow", "tensorboard", "csv", "wandb")]


def by_script(folder: Path, planted: Planted) -> Path:
    script = folder.parent / f"{folder.name}-train.py"
    script.write_text(SCRIPT)
    last = ["--password", planted.new("script, ending")]
    words = ["run", "--run", str(folder / "script"), str(script), *planted.words, *last]
    done = subprocess.run(
        [sys.executable, "-m", "sonde", *words], cwd=folder, capture_output=True, text=True, env=dict(os.environ)
    )
    assert "RuntimeError: cannot log in" in done.stderr, done.stderr  # the script's own words are the user's
    return folder / "script"


def needles(secret: str) -> Iterator[str]:
    """A secret as it may be written, and its halves: a part of it is too much as well."""
    for line in secret.splitlines():
        half = len(line) // 2
        for part in (line, line[:half], line[half:]) if half >= 10 else (line,):
            yield from {part, json.dumps(part)[1:-1], quote(part, safe=""), html.escape(part)}


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()
            if path.suffix == ".parquet":
                file = pq.ParquetFile(path)
                yield f"{path.name} (schema)", f"{file.schema_arrow} {file.metadata.metadata}".encode()


def test_no_planted_secret_is_in_any_file_of_any_run(recorded: Recorded) -> None:
    assert len(recorded.runs) == 20
    assert len(ARGUMENTS) >= 40
    files = dict(contents(recorded.folder))
    assert {Path(name).suffix for name in files} >= {".json", ".jsonl", ".parquet", ".html", ".md", ".wandb", ".log"}
    assert any("tfevents" in name for name in files)
    whole = b"\n".join(files.values())
    found = {
        (place, name)
        for place, secret in recorded.secrets.items()
        if any(needle.encode() in whole for needle in needles(secret))
        for name, content in files.items()
        if any(needle.encode() in content for needle in needles(secret))
    }
    assert found == set()


def test_no_planted_secret_is_printed_logged_or_sent(recorded: Recorded) -> None:
    assert any(name.startswith("webhook") for name in recorded.texts)
    whole = "\n".join(recorded.texts.values())
    found = {
        (place, name)
        for place, secret in recorded.secrets.items()
        if any(needle in whole for needle in needles(secret))
        for name, text in recorded.texts.items()
        if any(needle in text for needle in needles(secret))
    }
    assert found == set()


def test_what_is_no_secret_is_there(recorded: Recorded) -> None:
    """Else hiding everything would pass."""
    for path in recorded.runs[:NUM_RECORDED]:
        run = sonde.load(path)
        assert run.info["config"]["lr"] == 0.1
        command = run.info["environment"]["command"]
        assert len(command) == 1 + len(Planted(Source(0)).words)
        assert command[:3] == ["train.py", "--api-key", HIDDEN]
        assert "host=db user=bob password=••• dbname=runs" in command
    assert "login(user='bob', password='•••') failed" in {
        event.data["text"] for event in sonde.load(recorded.runs[1]).events("note")
    }
    crashed = sonde.load(recorded.folder / "crashed")
    assert (
        crashed.state.reason
        == f"RuntimeError: {HIDDEN} was wrong: HTTPError: 401 for url: https://{HIDDEN}@example.com/x"
    )
    assert sonde.load(recorded.folder / "from-mlflow").info["config"]["args"] == (
        f"Namespace(lr=0.1, hf_token='{HIDDEN}', epochs=3)"
    )
    script = sonde.load(recorded.folder / "script")
    assert script.state.reason == f"RuntimeError: cannot log in with password={HIDDEN} or {HIDDEN}"
    assert script.info["config"]["args"][:2] == ["--api-key", HIDDEN]
