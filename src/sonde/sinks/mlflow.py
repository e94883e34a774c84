"""MLflow's tracking, in a database or behind a server."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sonde.core import strict_json
from sonde.core.findings import Finding
from sonde.core.frames import Frame
from sonde.core.optional import require
from sonde.core.records import Event
from sonde.sinks.names import WHOLE, portable_name, portable_text, shortened
from sonde.sinks.selections import Selection
from sonde.sinks.sink import STARTED, Item, Refused, finding
from sonde.sinks.translation import Translation
from sonde.streams.logs import logger

_log = logger("sonde.sinks")

# MLflow's own limits of a request.
_MOST_METRICS = 1000
_MOST_PARAMS = 100
_PARAM_CHARS = 6000
_TAG_CHARS = 5000  # what every server takes

_REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST"})
_TEXT_FILE = "sonde/findings.txt"
_TEXT_S = 60.0  # it is written anew each time


class MLflow:
    """Logs to a run of MLflow: metrics in batches, the configuration as parameters, findings as tags and a text file.

    MLflow keeps an infinity as ±1.8e308, and has no histograms: they are left out. Its client tries again by itself,
    for minutes (`MLFLOW_HTTP_REQUEST_MAX_RETRIES`), before a fault is one.

    Args:
        tracking_uri: `sqlite:///mlflow.db`, `http://…`; MLflow's own default (`MLFLOW_TRACKING_URI`) where left out.
        experiment: Made where it does not exist.
        run_name: That of the run's folder where left out.
        run_id: A run that exists, to log to instead; it is not ended here.
        selection: What is logged; histograms never are. By default the main series of the run as a whole, since its
            database takes 0.1 ms for each value.
    """

    name = "mlflow"

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        experiment: str = "sonde",
        run_name: str | None = None,
        run_id: str | None = None,
        selection: Selection = Selection(essential=WHOLE, layers=(), rows_per_s=5.0),  # noqa: B008
    ) -> None:
        self.selection = selection
        self._mlflow = require("mlflow", "mlflow")
        self._entities = require("mlflow.entities", "mlflow")
        self._uri, self._experiment, self._run_name = tracking_uri, experiment, run_name
        self._run_id, self._is_ours = run_id, run_id is None
        self._client: Any = None
        self._translation = Translation(portable_name)
        self._findings: dict[tuple[str, int], Finding] = {}
        self._started = Event(STARTED, 0.0, None, {"run": ".", "config": {}})
        self._has_failed = self._is_text_old = False
        self._next_text = 0.0

    def write(self, batch: Sequence[Item]) -> None:
        """Log rows and events."""
        for item in batch:
            if isinstance(item, Event) and item.kind == STARTED:
                self._started = item
        try:
            if self._client is None:
                self._client = self._open()
            metrics = list(self._metrics(batch))
            for first in range(0, len(metrics), _MOST_METRICS):
                self._client.log_batch(self._run_id, metrics=metrics[first : first + _MOST_METRICS])
            self._tell([found for item in batch if isinstance(item, Event) and (found := finding(item)) is not None])
        except self._mlflow.exceptions.MlflowException as error:
            if error.error_code in _REFUSALS:
                raise Refused(str(error)) from error
            raise
        self._has_failed |= any(isinstance(item, Event) and item.kind == "exception" for item in batch)

    def close(self, timeout_s: float) -> None:
        """End the run."""
        if self._client is None:
            return
        self._log_text()
        client, self._client = self._client, None
        if self._is_ours:
            client.set_terminated(self._run_id, "FAILED" if self._has_failed else "FINISHED")

    def _open(self) -> Any:
        client = self._mlflow.MlflowClient(tracking_uri=self._uri)
        folder = Path(str(self._started.data["run"])).resolve()
        if self._run_id is None:
            run = client.create_run(
                self._experiment_id(client),
                run_name=self._run_name or folder.name,
                start_time=round(self._started.time * 1000) or None,
                tags={"sonde.run": str(folder)},
            )
            self._run_id = run.info.run_id
        self._log_params(client)
        return client

    def _experiment_id(self, client: Any) -> Any:
        known = client.get_experiment_by_name(self._experiment)
        if known is None:
            try:
                return client.create_experiment(self._experiment)
            except self._mlflow.exceptions.MlflowException:
                known = client.get_experiment_by_name(self._experiment)  # somebody else was faster
                if known is None:
                    raise
        return known.experiment_id

    def _log_params(self, client: Any) -> None:
        config = strict_json.loads(strict_json.dumps(self._started.data["config"]))
        given = {shortened(name): value[:_PARAM_CHARS] for name, value in _flat(config)}
        params = [self._entities.Param(name, value) for name, value in given.items()]
        for first in range(0, len(params), _MOST_PARAMS):
            try:
                client.log_batch(self._run_id, params=params[first : first + _MOST_PARAMS])
            except self._mlflow.exceptions.MlflowException as error:
                if error.error_code not in _REFUSALS:
                    raise
                _log.warning("%s keeps its parameters of before: %s", self.name, error)  # they cannot be changed

    def _metrics(self, batch: Sequence[Item]) -> Iterator[Any]:
        for item in batch:
            if isinstance(item, Frame) and item.columns.bins == 1:
                milliseconds = round(item.time * 1000)
                for name, value in self._translation.values(item):
                    yield self._entities.Metric(name, value, milliseconds, item.step)

    def _tell(self, found: Sequence[Finding]) -> None:
        self._findings.update({(one.code, one.first_step): one for one in found})
        self._is_text_old |= bool(found)
        tags = {f"sonde.finding.{one.code}": str(one)[:_TAG_CHARS] for one in found}
        for name, text in tags.items():
            self._client.set_tag(self._run_id, name, text)
        if time.monotonic() > self._next_text:
            self._log_text()

    def _log_text(self) -> None:
        if not self._is_text_old:
            return
        self._is_text_old, self._next_text = False, time.monotonic() + _TEXT_S
        try:
            text = "\n\n".join(map(str, self._findings.values()))
            self._client.log_text(self._run_id, text, _TEXT_FILE)
        except Exception as error:  # where files go is another service, with its own rights; the tags have it
            _log.debug("%s did not take %s: %r", self.name, _TEXT_FILE, error)


def _flat(config: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of a configuration, by their path.

    Example:
        >>> list(_flat({"lr": 0.1, "model": {"depth": 2, "sizes": [3, 4]}}))
        [('lr', '0.1'), ('model.depth', '2'), ('model.sizes', '[3, 4]')]
    """
    if isinstance(config, Mapping) and config:
        for key, value in config.items():
            yield from _flat(value, f"{path}.{portable_text(str(key))}" if path else portable_text(str(key)))
    elif path:
        yield path, config if isinstance(config, str) else strict_json.dumps(config)
