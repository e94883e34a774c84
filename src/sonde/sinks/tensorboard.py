"""TensorBoard's event files."""

import contextlib
import itertools
import os
import re
import socket
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sonde.core import strict_json
from sonde.core.findings import Finding
from sonde.core.frames import Columns, Float32, Frame
from sonde.core.optional import require
from sonde.core.records import Event
from sonde.sinks import bins
from sonde.sinks.event_records import Scalars, record
from sonde.sinks.names import CONFIG, FINDINGS, tensorboard_name
from sonde.sinks.selections import Selection
from sonde.sinks.sink import BRANCHED, STARTED, Item, finding
from sonde.sinks.translation import Translation

_EXTRA = "tensorboard"
_FOLDER = "tensorboard"
_MOST_COLUMNS = 512
_BREATH_S = 50e-6  # between rows the training gets the interpreter, for which it would wait up to 5 ms otherwise
_NUMBERS = itertools.count()  # of the files of this process, which must not have the same name

# Of the page "Custom Scalars": charts with several series, by their tags of ours.
_CHARTS = {
    "training loss": ("loss", "loss/ema"),
    "training and validation": ("loss/ema", "val/loss"),
}


class TensorBoard:
    """Writes event files for `tensorboard --logdir`: scalars, histograms, findings and the configuration as text.

    A row is one event with many values, at the row's own time. The bins of histograms keep their edges and counts. A
    chart with the raw and the smoothed loss is laid out on the page "Custom Scalars". Where a run goes back to an
    earlier step, TensorBoard is told to forget what came after it.

    After a fault (a full disk) it goes on in a new file of the folder.

    Args:
        logdir: The folder of this run's event files; `tensorboard` in the run's folder where left out.
        selection: What is written.
    """

    name = "tensorboard"

    def __init__(
        self,
        logdir: str | os.PathLike[str] | None = None,
        *,
        selection: Selection = Selection(),  # noqa: B008
    ) -> None:
        self.selection = selection
        self._logdir = None if logdir is None else os.fspath(logdir)
        self._event = require("tensorboard.compat.proto.event_pb2", _EXTRA)
        self._summary = require("tensorboard.compat.proto.summary_pb2", _EXTRA)
        self._layout = require("tensorboard.plugins.custom_scalar.layout_pb2", _EXTRA)
        self._gfile = require("tensorboard.compat", _EXTRA).tf.io.gfile
        self._tensors = require("tensorboard.util.tensor_util", _EXTRA)
        self._metadata = {
            kind: require(f"tensorboard.plugins.{kind}.metadata", _EXTRA)
            for kind in ("histogram", "text", "custom_scalar")
        }
        self._translation = Translation(tensorboard_name)
        self._started = Event(STARTED, 0.0, None, {"run": ".", "config": {}})
        self._scalars: dict[Columns, Scalars] = {}
        self._file: Any = None
        self._path, self._num_batches = "", 0

    def write(self, batch: Sequence[Item]) -> None:
        """Write rows and events, and have them on the disk."""
        for item in batch:
            if isinstance(item, Event) and item.kind == STARTED:
                self._started = item
        try:
            if self._file is None:
                self._open()
            self._append([self._row(item) if isinstance(item, Frame) else self._happened(item) for item in batch])
            self._num_batches += 1
        except Exception:
            self._abandon()
            raise

    def close(self, timeout_s: float) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> None:
        folder = self._logdir or os.path.join(str(self._started.data["run"]), _FOLDER)  # noqa: PTH118  may be an address
        self._gfile.makedirs(folder)
        # TensorBoard reads the files of a folder in the order of their names. Not its `EventFileWriter`: that has a
        # thread, which prints what goes wrong, and adds values one by one (see `event_records`).
        name = f"events.out.tfevents.{int(time.time()):010}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS):04}"
        self._path, self._num_batches = os.path.join(folder, name), 0  # noqa: PTH118
        self._file = self._gfile.GFile(self._path, "wb")
        values = [self._charts()]
        config = self._started.data["config"]
        if config:
            values.append(self._text(CONFIG, strict_json.dumps(config, indent=2)))
        version = self._event.Event(wall_time=time.time(), file_version="brain.Event:2")
        self._append([version.SerializeToString(), self._of(0, self._started.time, values)])

    def _append(self, events: Sequence[bytes]) -> None:
        self._file.write(b"".join(record(event) for event in events if event))  # at once: each call opens the file
        self._file.flush()

    def _abandon(self) -> None:
        """Go on in another file: this one may end in half a record; one that has nothing else goes."""
        with contextlib.suppress(Exception):  # what is wrong with it is said by whoever calls this
            self.close(0.0)
        if not self._num_batches and self._path:
            with contextlib.suppress(OSError):
                os.remove(self._path)  # noqa: PTH107

    def _row(self, frame: Frame) -> bytes:
        time.sleep(_BREATH_S)
        if frame.columns.bins == 1:
            return self._scalars_of(frame.columns).event(frame.step, frame.time, frame.values)
        if frame.columns.bins != bins.NUM_BINS:
            return b""  # a sketch that TensorBoard has no picture for
        values = [self._histogram(name, counts) for name, counts in self._translation.counts(frame)]
        return self._of(frame.step, frame.time, values) if values else b""

    def _scalars_of(self, columns: Columns) -> Scalars:
        found = self._scalars.get(columns)
        if found is None:
            if len(self._scalars) >= _MOST_COLUMNS:
                self._scalars.clear()
            found = self._scalars[columns] = Scalars([tensorboard_name(tag) for tag in columns.tags])
        return found

    def _happened(self, event: Event) -> bytes:
        if event.kind == BRANCHED:
            log = self._event.SessionLog(status=self._event.SessionLog.START)
            return bytes(self._event.Event(wall_time=event.time, step=event.step, session_log=log).SerializeToString())
        found = finding(event)
        if found is None:
            return b""
        return self._of(found.last_step, event.time, [self._text(f"{FINDINGS}/{found.code}", _markdown(found))])

    def _of(self, step: int, time: float, values: Sequence[Any]) -> bytes:
        summary = self._summary.Summary(value=values)
        return bytes(self._event.Event(wall_time=time, step=step, summary=summary).SerializeToString())

    def _histogram(self, name: str, counts: Float32) -> Any:
        found, edges = bins.occupied(counts)
        table = np.stack([edges[:-1], edges[1:], found], axis=1) if len(found) else np.empty((0, 3))
        return self._tensor(name, "histogram", table)

    def _text(self, name: str, text: str) -> Any:
        return self._tensor(name, "text", np.array([text.encode()], object))

    def _charts(self) -> Any:
        layout = self._layout
        charts = [
            layout.Chart(
                title=title,
                multiline=layout.MultilineChartContent(
                    tag=[f"^{re.escape(tensorboard_name(tag).text)}$" for tag in tags]
                ),
            )
            for title, tags in _CHARTS.items()
        ]
        page = layout.Layout(category=[layout.Category(title="Loss", chart=charts)])
        metadata = self._metadata["custom_scalar"]
        return self._summary.Summary.Value(
            tag=metadata.CONFIG_SUMMARY_TAG,
            tensor=self._tensors.make_tensor_proto(page.SerializeToString()),
            metadata=metadata.create_summary_metadata(),
        )

    def _tensor(self, name: str, kind: str, content: Any) -> Any:
        metadata = self._metadata[kind].create_summary_metadata("", "")
        metadata.data_class = self._summary.DATA_CLASS_TENSOR
        return self._summary.Summary.Value(tag=name, tensor=self._tensors.make_tensor_proto(content), metadata=metadata)


def _markdown(found: Finding) -> str:
    """As TensorBoard shows text: indented by four, lines stay lines."""
    head, *body = str(found).splitlines()
    return f"**{head}**\n\n" + "\n".join(f"    {line.strip()}" for line in body)
