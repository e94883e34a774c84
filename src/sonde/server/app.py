"""The routes: each reads what a request asks for, has it answered, and says in `/openapi.json` what comes."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException

from sonde.core import strict_json
from sonde.core.errors import StoreError, TagNotFound
from sonde.core.strict_json import Json
from sonde.reports.comparing import compare
from sonde.server import binary, curves, densities, heat_maps, manual_pages, page, schemas
from sonde.server.details import Details
from sonde.server.diagnoses import Diagnoses
from sonde.server.entrance import Application, Entrance
from sonde.server.folders import Folder
from sonde.server.lines import Line, Lines
from sonde.server.live import Live
from sonde.server.note_entries import add_note
from sonde.server.opened import OpenRun, OpenRuns
from sonde.server.refusals import Refusal
from sonde.server.remembered import Remembered
from sonde.server.security import Access
from sonde.server.stamps import run_stamp
from sonde.store.environment import told
from sonde.streams.logs import logger

_log = logger("sonde.server")

MOST_TAGS = 100
MOST_POINTS = 10_000
MOST_COMPARED = 8

_STEP = 1 << 62
_PATIENCE_S = 0.25  # for curves of a table that nobody has looked at yet
_BINARY: dict[str, Any] = {"content": {binary.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": what}
    for status, what in {
        400: "The request is not as it should be.",
        401: "The token is missing or wrong.",
        403: "Host, Origin or the run's folder forbid it.",
        404: "There is no such thing.",
        405: "The method is not for this address.",
        413: "The request is too long.",
        415: "The request is not JSON.",
        429: "There are too many streams.",
    }.items()
}

RunId = Annotated[
    str, InPath(description="The run's path below the folder, as one segment: `encodeURIComponent`.", max_length=4096)
]
First = Annotated[int | None, Query(alias="from", description="First step wanted.", ge=-_STEP, le=_STEP)]
Last = Annotated[int | None, Query(alias="to", description="Last step wanted, included.", ge=-_STEP, le=_STEP)]
Pattern = Annotated[str, Query(description="Shell-style: `grad/norm@*`.", max_length=1024)]


def application(
    folder: str | os.PathLike[str],
    *,
    access: Access | None = None,
    is_over: Callable[[], bool] = lambda: False,
    shown: str = "",
) -> Application:
    """The server of a folder of runs, as an ASGI application.

    Args:
        folder: The folder, or a run.
        access: Who may ask; where left out, whoever reaches it by a name of this machine.
        is_over: Asked by streams, which end when the server does.
        shown: What the folder is called, where it is a copy of another: then it takes no notes.
    """
    diagnoses = Diagnoses()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        yield
        diagnoses.close()

    app = FastAPI(
        title="Sonde",
        version=metadata.version("sonde"),
        description="Runs of neural-network trainings, recorded by Sonde. Binary answers: docs/reference/http.md.",
        docs_url=None,  # they would fetch scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    _add_routes(app, Folder(folder), diagnoses, is_over, shown)
    _add_refusals(app)
    for path in app.openapi()["paths"].values():  # made once, and kept
        for operation in path.values():
            operation["responses"].pop("422", None)  # which FastAPI says of each: here it is 400
    return Entrance(app, access or Access())


def _json(value: Mapping[str, Json], status: int = 200) -> Response:
    return Response(strict_json.dumps({"schema": 1, **value}).encode(), status, media_type="application/json")


def _binary(value: bytes) -> Response:
    return Response(value, media_type=binary.MEDIA_TYPE)


def _answers(model: type | None, *, about: dict[str, Any] | None = None) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model} if about is None else about, **_PROBLEMS}


def _add_routes(app: FastAPI, folder: Folder, diagnoses: Diagnoses, is_over: Callable[[], bool], copy_of: str) -> None:
    lines, opened = Lines(diagnoses), OpenRuns()
    details = Details(lines, opened, diagnoses)
    live = Live(folder, lines, opened, is_over)
    comparisons: Remembered[dict[str, Json]] = Remembered(16)

    @contextmanager
    def use(run: str) -> Iterator[OpenRun]:
        path = folder.find(unquote(run))
        try:
            with opened.use(path) as found:
                yield found
        except (StoreError, OSError) as error:
            folder.find(unquote(run))  # which says so where it was deleted meanwhile
            raise Refusal(
                404, str(error), allowed="runs that can be read.", do="see `problem` in /api/runs."
            ) from error

    @app.get("/api/runs", responses=_answers(schemas.Runs), response_class=Response, summary="The table of runs")
    def runs(
        offset: Annotated[int, Query(ge=0, le=_STEP)] = 0,
        limit: Annotated[int, Query(ge=1, le=5000)] = 1000,
        sort: Literal["updated", "created", "name", "steps", "loss"] = "updated",
    ) -> Response:
        until = time.monotonic() + _PATIENCE_S
        there = folder.runs()
        if sort == "updated":  # of which the first page can be told without the rest
            order = sorted(there, key=lambda name: (-lines.updated(there[name]), name))
            shown = list(
                lines.all({name: there[name] for name in order[offset : offset + limit]}, until=until).values()
            )
        else:
            every = lines.all(there, until=until).values()
            shown = sorted(every, key=lambda line: _place(line, sort))[offset : offset + limit]
        about = strict_json.dumps(
            {
                "schema": 1,
                "folder": copy_of or str(folder.root),
                "total": len(there),
                "pending": sum(line.partial for line in shown),
            }
        )
        body = f'{about[:-1]}, "runs": [{", ".join(map(lines.text, shown))}]}}'
        return Response(body.encode(), media_type="application/json")

    @app.get("/api/runs/{run}", responses=_answers(schemas.Run), response_class=Response, summary="One run")
    def one(run: RunId) -> Response:
        return _json(details.of(unquote(run), folder.find(unquote(run))))

    @app.get("/api/runs/{run}/tags", responses=_answers(schemas.Tags), response_class=Response, summary="Series")
    def tags(run: RunId, pattern: Pattern = "*", limit: Annotated[int, Query(ge=1, le=200_000)] = 2000) -> Response:
        with use(run) as found:
            matching = _matching(found.tags(), pattern)
        return _json({"tags": matching[:limit], "total": len(matching)})

    @app.get(
        "/api/runs/{run}/series",
        responses=_answers(None, about=_BINARY),
        response_class=Response,
        summary="Series at any zoom",
    )
    def series(
        run: RunId,
        tag: Annotated[list[str], Query(min_length=1, max_length=MOST_TAGS, description="Series; several times.")],
        start: Annotated[float | None, Query(alias="from", ge=-_STEP, le=_STEP)] = None,
        end: Annotated[float | None, Query(alias="to", ge=-_STEP, le=_STEP)] = None,
        points: Annotated[int, Query(ge=1, le=MOST_POINTS)] = 1000,
        by: Literal["step", "time"] = "step",
    ) -> Response:
        with use(run) as found:
            made = curves.series(found.run, tag, start=start, end=end, points=points, by_time=by == "time")
        return _binary(made)

    @app.get(
        "/api/runs/{run}/layers",
        responses=_answers(None, about=_BINARY),
        response_class=Response,
        summary="A statistic of all layers",
    )
    def layers(
        run: RunId,
        path: Annotated[str, Query(min_length=1, max_length=1024, description="Of the statistic: `grad/rms`.")],
        start: First = None,
        end: Last = None,
        columns: Annotated[int, Query(ge=1, le=4000)] = 400,
        by: Literal["depth", "name"] = "depth",
    ) -> Response:
        with use(run) as found:
            made = heat_maps.heat_map(
                found.run, found.tags(), path, start=start, end=end, columns=columns, by_depth=by == "depth"
            )
        return _binary(made)

    @app.get(
        "/api/runs/{run}/layer-paths",
        responses=_answers(schemas.LayerPaths),
        response_class=Response,
        summary="Statistics that exist of layers",
    )
    def layer_paths(run: RunId) -> Response:
        with use(run) as found:
            return _json({"paths": heat_maps.layer_paths(found.tags(), found.run.model)})

    @app.get(
        "/api/runs/{run}/histograms",
        responses=_answers(None, about=_BINARY),
        response_class=Response,
        summary="Histograms over time",
    )
    def histograms(
        run: RunId,
        tag: Annotated[str, Query(min_length=1, max_length=1024)],
        start: First = None,
        end: Last = None,
        rows: Annotated[int, Query(ge=1, le=1000)] = 60,
    ) -> Response:
        with use(run) as found:
            return _binary(densities.histograms(found.run, tag, start=start, end=end, rows=rows))

    @app.get(
        "/api/runs/{run}/histogram-tags",
        responses=_answers(schemas.Tags),
        response_class=Response,
        summary="Histograms that there are",
    )
    def histogram_tags(run: RunId, pattern: Pattern = "*") -> Response:
        with use(run) as found:
            matching = found.run.histogram_tags(pattern)
        return _json({"tags": matching, "total": len(matching)})

    @app.get(
        "/api/runs/{run}/events", responses=_answers(schemas.Events), response_class=Response, summary="What happened"
    )
    def events(
        run: RunId,
        kind: Annotated[str | None, Query(max_length=200)] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 500,
    ) -> Response:
        with use(run) as found:
            happened = found.run.events(kind or None)[-limit:]
        return _json({"events": [asdict(event) for event in happened]})

    @app.post(
        "/api/runs/{run}/notes",
        responses=_answers(schemas.NotesAnswer),
        response_class=Response,
        summary="Say something of a run",
    )
    def note(run: RunId, entry: schemas.NewNote) -> Response:
        path = folder.find(unquote(run))
        if copy_of:
            raise Refusal(
                403,
                f"these runs are a copy of {copy_of}: what is said of them would be lost.",
                allowed="folders of this machine.",
                do="say it where the runs are.",
            )
        add_note(path, entry.kind, text=entry.text, code=entry.code, first_step=entry.first_step)
        return _json({"notes": lines.notes(path).to_json()})

    @app.get("/api/compare", responses=_answers(None, about={}), response_class=Response, summary="Runs side by side")
    def compared(
        run: Annotated[list[str], Query(min_length=2, max_length=MOST_COMPARED, description="Ids; the first is held.")],
        tag: Annotated[str | None, Query(max_length=1024)] = None,
        by: Literal["step", "samples", "tokens", "time"] = "step",
    ) -> Response:
        paths = [folder.find(name) for name in run]
        stamp = tuple(map(run_stamp, paths))
        try:
            key = tuple(paths), tag, by
            found = comparisons.get(key, stamp, lambda: _compared(paths, tag, by))
        except TagNotFound as error:
            raise Refusal(404, str(error), allowed="series that a run has.", do="choose another series.") from error
        except StoreError as error:
            raise Refusal(404, str(error), allowed="runs that can be read.", do="leave that run out.") from error
        return _json(found)

    @app.get("/api/rules/{code}", responses=_answers(schemas.Rule), response_class=Response, summary="A rule's page")
    def rule(code: Annotated[str, InPath(max_length=20)]) -> Response:
        found = manual_pages.about(code.upper())
        if found is None:
            raise Refusal(404, f"there is no rule {code!r}.", allowed="three letters, three digits.", do="sonde rules")
        return _json(found)

    @app.get(
        "/api/live",
        responses=_answers(
            None, about={"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events."}
        ),
        response_class=StreamingResponse,
        summary="What changes",
    )
    async def changes(
        request: Request,
        run: Annotated[list[str] | None, Query(description="Ids; without, the table of runs.")] = None,
    ) -> StreamingResponse:
        stream = live.stream(run or [], request.headers.get("last-event-id", ""))
        return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return _file(page.index())

    @app.get("/assets/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        found = page.asset(unquote(name))
        if found is None:
            raise Refusal(404, f"there is no file {name[:200]!r}.", allowed="files of the page.", do="load / again.")
        return _file(found)


def _file(file: page.File) -> Response:
    kept = {"cache-control": "public, max-age=31536000, immutable"} if file.is_hashed else {}
    return Response(file.content, media_type=file.kind, headers=kept)


def _place(line: Line, sort: str) -> Any:
    """Where a line stands: names from A on, losses from the smallest on, all else from the largest on."""
    if sort == "name":
        return line.name, line.id
    value = getattr(line, sort)
    if sort == "loss":
        is_known = value is not None and value == value
        return not is_known, value if is_known else 0, line.id
    return -value, line.id


def _matching(tags: Sequence[str], pattern: str) -> list[str]:
    from fnmatch import filter as matching

    return list(tags) if pattern == "*" else matching(tags, pattern.replace("[", "[[]"))


def _compared(paths: Sequence[Path], tag: str | None, by: str) -> dict[str, Json]:
    found: dict[str, Json] = compare(paths[0], paths[1], *paths[2:], tag=tag, by=by).to_json()
    return found


def _add_refusals(app: FastAPI) -> None:
    """Every error in one form."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> Response:
        return _json(refusal.to_json(), refusal.status)

    @app.exception_handler(RequestValidationError)
    async def wrong(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        refusal = Refusal(400, f"{where}: {first['msg']}.", allowed="see /openapi.json.", do="change it.")
        return _json(refusal.to_json(), 400)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        # The path alone: what is behind it may hold the token.
        _log.warning("%s %s failed, which is a fault of Sonde's: %s", request.method, request.url.path, told(error))
        refusal = Refusal(500, "the server failed.", allowed="nothing else.", do="see what `sonde ui` printed.")
        return _json(refusal.to_json(), 500)

    @app.exception_handler(HTTPException)
    async def missing(request: Request, error: HTTPException) -> Response:
        shown = request.url.path[:200]
        refusal = Refusal(
            error.status_code,
            f"{request.method} {shown}: {error.detail}.",
            allowed="/openapi.json lists all addresses.",
            do="look there.",
        )
        allow = error.headers or {}
        answer = _json(refusal.to_json(), error.status_code)
        answer.headers.update(allow)
        return answer
