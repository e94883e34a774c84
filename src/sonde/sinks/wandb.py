"""Weights & Biases, online or offline."""

import inspect
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sonde.core import strict_json
from sonde.core.findings import Finding, Severity
from sonde.core.frames import Frame
from sonde.core.optional import require
from sonde.core.records import Event
from sonde.sinks import bins
from sonde.sinks.names import CONFIG, FINDINGS, STEP, portable_name
from sonde.sinks.selections import Selection
from sonde.sinks.sink import STARTED, Item, Refused, finding
from sonde.sinks.translation import Translation

_COLUMNS = ("code", "name", "severity", "first_step", "last_step", "open", "where", "message", "likely cause", "remedy")
_TABLE_S = 60.0
_TITLE_CHARS = 63  # W&B's limit
_LEVELS = {Severity.INFO: "INFO", Severity.WARNING: "WARN", Severity.CRITICAL: "ERROR"}


class WandB:
    """Logs to a run of W&B: once a step all of its values, histograms, findings as alerts and as a table.

    Whether it goes to the service or into a folder is W&B's own setting (`WANDB_MODE`, `wandb offline`), and so are the
    key and the address. The run is one of its own, beside any that the script has: W&B drops rows whose step is below
    the newest one, so that two who log to one run, each with its own steps, lose rows. Our step is logged as
    `global_step` and set as the axis of every chart. Nothing is printed, and the script's output is not captured.

    Args:
        project: Where the run is listed.
        name: Of the run; that of the run's folder where left out.
        run: A run that exists, from `wandb.init`, to log to instead; it is not finished here. Its owner must log
            without `step=`, or lose rows.
        selection: What is logged.
    """

    name = "wandb"

    def __init__(
        self,
        project: str = "sonde",
        *,
        name: str | None = None,
        run: Any = None,
        selection: Selection = Selection(rows_per_s=20.0),  # noqa: B008
    ) -> None:
        self.selection = selection
        self._wandb = require("wandb", "wandb")
        self._project, self._run_name = project, name
        self._given = self._run = run
        self._id: str | None = None
        self._translation = Translation(portable_name)
        self._families: set[str] = set()
        self._findings: dict[tuple[str, int], Finding] = {}
        self._started = Event(STARTED, 0.0, None, {"run": ".", "config": {}})
        self._has_failed = self._is_table_old = False
        self._next_table = 0.0

    def write(self, batch: Sequence[Item]) -> None:
        """Log rows and events; W&B itself keeps and sends them."""
        for item in batch:
            if isinstance(item, Event) and item.kind == STARTED:
                self._started = item
        try:
            if self._run is None:
                self._open()
            self._log(batch)
        except (TypeError, ValueError) as error:
            raise Refused(str(error)) from error
        except Exception:
            self._run = None  # finished by somebody, or W&B's process is gone: another session of the same run is next
            raise

    def close(self, timeout_s: float) -> None:
        """Finish the run, which waits for its upload."""
        if self._run is None:
            return
        try:
            self._log_table()
        finally:
            run, self._run = self._run, None
            if run is not self._given:
                run.finish(exit_code=int(self._has_failed))

    def _open(self) -> None:
        self._families.clear()
        if self._given is not None:
            self._run = self._given
            return
        # W&B would keep the command line as it is (in `wandb-metadata.json`), secrets and all.
        settings = self._wandb.Settings(silent=True, console="off", x_disable_meta=True)
        folder = str(self._started.data["run"])
        if not self._is_offline() and not self._has_key():
            raise ConnectionError("no API key is configured; run `wandb login`, or set WANDB_MODE=offline.")
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        self._run = self._wandb.init(
            project=self._project,
            name=self._run_name or os.path.basename(os.path.abspath(folder)),  # noqa: PTH100, PTH119
            dir=folder,
            config=_config(self._started.data["config"]),
            id=self._id,
            resume="allow" if self._id else None,
            reinit="create_new",
            settings=settings,
        )
        self._id = self._run.id

    def _is_offline(self) -> bool:
        return self._wandb.setup().settings.mode in ("offline", "dryrun", "disabled")

    def _has_key(self) -> bool:
        """Whether there is a key, found out without asking for one at the user's terminal."""
        if "prompt" not in inspect.signature(self._wandb.login).parameters:
            return True  # an older one; it will say
        return bool(self._wandb.login(prompt=False))

    def _log(self, batch: Sequence[Item]) -> None:
        for step, when, values in self._rows(batch):
            self._define(values)
            self._run.log({**values, STEP: step, "_timestamp": when})
        found = [one for item in batch if isinstance(item, Event) and (one := finding(item)) is not None]
        for one in found:
            self._run.alert(
                title=f"{one.code} {one.name}"[:_TITLE_CHARS],
                text=str(one),
                level=_LEVELS[one.severity],
                wait_duration=timedelta(0),
            )
            self._findings[one.code, one.first_step] = one
            self._is_table_old = True
        if time.monotonic() > self._next_table:
            self._log_table()
        self._has_failed |= any(isinstance(item, Event) and item.kind == "exception" for item in batch)

    def _log_table(self) -> None:
        """All findings; W&B keeps every table that it is given, so not with each of them."""
        if self._is_table_old:
            rows = [_row(one) for one in self._findings.values()]
            newest = max(one.last_step for one in self._findings.values())
            self._run.log({FINDINGS: self._wandb.Table(columns=list(_COLUMNS), data=rows), STEP: newest})
            self._is_table_old, self._next_table = False, time.monotonic() + _TABLE_S

    def _rows(self, batch: Sequence[Item]) -> Iterator[tuple[int, float, dict[str, Any]]]:
        """Step, time and values of each call; one more where a series has two values at a step."""
        step, when, values = 0, 0.0, dict[str, Any]()
        for item in batch:
            if not isinstance(item, Frame):
                continue
            new = dict(self._values(item))
            if values and (item.step != step or not values.keys().isdisjoint(new)):
                yield step, when, values
                values = {}
            step, when = item.step, item.time
            values.update(new)
        if values:
            yield step, when, values

    def _values(self, frame: Frame) -> Iterator[tuple[str, Any]]:
        if frame.columns.bins == 1:
            yield from self._translation.values(frame)
        elif frame.columns.bins == bins.NUM_BINS:
            for name, counts in self._translation.counts(frame):
                found, edges = bins.occupied(counts)
                if len(found):
                    yield name, self._wandb.Histogram(np_histogram=(found, edges))

    def _define(self, values: Mapping[str, Any]) -> None:
        for name in values:
            family, slash, _ = name.partition("/")
            if family not in self._families:
                self._families.add(family)
                self._run.define_metric(f"{family}/*" if slash else family, step_metric=STEP)


def _config(config: Any) -> dict[str, Any]:
    plain = strict_json.loads(strict_json.dumps(config))
    return plain if isinstance(plain, dict) else {CONFIG: plain}


def _row(one: Finding) -> list[Any]:
    cause = str(one.causes[0]) if one.causes else ""
    remedy = str(one.remedies[0]) if one.remedies else ""
    what = [one.code, one.name, one.severity.value, one.first_step, one.last_step, one.open]
    return [*what, ", ".join(one.where), one.message, cause, remedy]
