"""The requests that a page may make. All of them only read; runs and files are looked up by name, never by path."""

import asyncio
import contextlib
import csv
import io
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dreamfleet.base.logdir import SERIES
from dreamfleet.dashboard.access import Access
from dreamfleet.dashboard.assets import Assets
from dreamfleet.dashboard.events import Feed
from dreamfleet.dashboard.fleet import describe_fleet, find_faults, read_tail, search_lines
from dreamfleet.dashboard.hub import Hub
from dreamfleet.dashboard.run import Run
from dreamfleet.dashboard.series import AXES, MAX_POINTS, MAX_WINDOW, View, encode, reduce_line
from dreamfleet.metrics.reports import FOLDER
from dreamfleet.results.curves import Curve, aggregate, make_edges, make_run_curve

MAX_SERIES = 2000  # in one answer
MAX_FEEDS = 64
MAX_PAGE_NAME = 64  # characters
BAND_POINTS = 60
HEADERS = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def make_app(hub: Hub, token: str = "", is_stopping: Callable[[], bool] = lambda: False) -> ASGIApp:
    """The whole application on a hub; `is_stopping` ends the streams when the server does."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        work = asyncio.create_task(hub.work())
        yield
        work.cancel()

    pages, assets = Pages(hub, is_stopping), Assets()
    return Starlette(
        routes=[
            Route("/", assets.page),
            Route("/api/runs", pages.runs),
            Route("/api/metrics", pages.metrics),
            Route("/api/series", pages.series),
            Route("/api/band", pages.band),
            Route("/api/configs", pages.configs),
            Route("/api/fleet", pages.fleet),
            Route("/api/faults", pages.faults),
            Route("/api/log", pages.log),
            Route("/api/report", pages.report),
            Route("/api/csv", pages.csv),
            Route("/api/watch", pages.watch),
            Route("/api/events", pages.events),
            Route("/charts/{file}", assets.charts),
            Route("/static/{file}", assets.static),
        ],
        middleware=[
            Middleware(Access, token=token),
            Middleware(Headers),
            Middleware(GZipMiddleware, minimum_size=2048, compresslevel=1),
        ],
        lifespan=lifespan,
    )


class Json(JSONResponse):
    """An answer in ASCII: names that a run has logged may hold what UTF-8 cannot express."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Headers:
    """Adds the headers that keep a page from loading or telling anything elsewhere."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(item for item in more if item[0] not in present)]
            await send(message)

        await self._app(scope, receive, add)


class Pages:
    """The handlers. What reads files runs in threads, so that one slow disk does not hold up the others."""

    def __init__(self, hub: Hub, is_stopping: Callable[[], bool]):
        self._hub = hub
        self._is_stopping = is_stopping
        self._feeds = 0
        self._watched: dict[str, set[str]] = {}  # metrics on screen by page, oldest first

    async def runs(self, _: Request) -> Response:
        """All runs, one row each."""
        await asyncio.to_thread(self._hub.ask)
        return Json([run.summary() for run in list(self._hub.runs.values())])

    # What a page shows of its runs is answered for those that are there: a link may name others, and a run may go
    # before the page has heard of it.

    async def metrics(self, request: Request) -> Response:
        """The names of the metrics of runs."""
        runs = await self._list_runs(request)
        return await _json(lambda: {run.name: run.want().metrics() for run in runs})

    async def series(self, request: Request) -> Response:
        """Metrics of runs, reduced to the pixels of a chart, each with the cursor that it goes up to."""
        runs, metrics, view = (
            await self._list_runs(request),
            request.query_params.getlist("metric"),
            _read_view(request),
        )
        if len(runs) * len(metrics) > MAX_SERIES:
            raise HTTPException(400, f"more than {MAX_SERIES} series at once")
        if page := _read_page(request):  # before the history is read: what comes later is in its stream
            self._watch(page, {*self._watched.get(page, ()), *metrics})

        def load(run: Run, metric: str) -> dict[str, Any]:
            line, cursor, is_partial = run.line(metric, view)
            return {**reduce_line(line, view), "cursor": cursor, "partial": is_partial}

        def load_run(run: Run) -> dict[str, Any]:
            run.want([*metrics, *view.needs])
            return {metric: load(run, metric) for metric in metrics}

        return await _json(lambda: {run.name: load_run(run) for run in runs})

    async def band(self, request: Request) -> Response:
        """Mean and standard deviation of a metric over runs, computed as `dreamfleet plot` does."""
        runs, metric, view = await self._list_runs(request), _text(request, "metric"), _read_view(request)

        def load() -> dict[str, Any]:
            curves = [make_run_curve(run.want([metric]).points(metric), view.axis) for run in runs]
            curves = [curve for curve in curves if len(curve.xs)]
            if not curves:
                return {"x": "", "mean": "", "std": "", "runs": 0}
            band = aggregate(curves, make_edges([Curve("", "", curves)], BAND_POINTS))
            return {"x": encode(band.xs), "mean": encode(band.mean), "std": encode(band.std), "runs": len(curves)}

        return await _json(load)

    async def configs(self, request: Request) -> Response:
        """The options of runs."""
        runs = await self._list_runs(request)

        def load(run: Run) -> dict[str, Any]:
            run.load_config()
            values = (run.config or {}).items()
            return {key: _as_json(value) for key, value in values}

        return await _json(lambda: {run.name: load(run) for run in runs})

    async def fleet(self, request: Request) -> Response:
        """Roles, waits, limiter and reports of a run."""
        run = await self._find_run(request)
        return await _json(lambda: {**describe_fleet(run.want(None)), "reports": run.reports()})

    async def faults(self, request: Request) -> Response:
        """Restarts and tracebacks of a run."""
        runs = (await self._list_runs(request))[:1]
        return await _json(lambda: [fault for run in runs for fault in find_faults(run)])

    async def log(self, request: Request) -> Response:
        """The end of a role's log, or the lines of it in which a text is found."""
        runs, role, search = (
            await self._list_runs(request),
            _text(request, "role"),
            request.query_params.get("search", ""),
        )

        def load() -> dict[str, Any]:
            names = runs[0].logs() if runs else []
            return {"roles": names, "lines": search_lines(read_tail(runs[0], role), search) if role in names else []}

        return await _json(load)

    async def report(self, request: Request) -> Response:
        """One kept video or set of signals."""
        run, name, file = await self._find_run(request), _text(request, "name"), _text(request, "file")

        def read() -> bytes:
            if not any(report["name"] == name and report["file"] == file for report in run.reports()):
                raise HTTPException(404, "this report is not there any more")
            return run.folder.read(f"{FOLDER}/{name}/{file}")

        kind = "image/png" if file.endswith(".png") else "application/json"
        return Response(await _read(read), media_type=kind, headers={"cache-control": "max-age=3600"})

    async def csv(self, request: Request) -> Response:
        """A metric of runs with all of its points."""
        runs, metric = await self._find_runs(request), _text(request, "metric")

        def lines() -> Iterator[str]:
            yield _csv_line("run", "step", "time", metric)
            for run in runs:
                points = run.want([metric]).points(metric)
                for row in zip(points.step.tolist(), points.time.tolist(), points.value.tolist(), strict=True):
                    yield _csv_line(run.name, *row)

        name = "".join(letter if letter.isalnum() else "_" for letter in metric if letter.isascii())[:100]
        headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
        return StreamingResponse(lines(), media_type="text/csv", headers=headers)

    async def watch(self, request: Request) -> Response:
        """Tells which metrics a page has on screen: its stream brings no others."""
        _text(request, "page")
        self._watch(_read_page(request), set(request.query_params.getlist("metric")))
        return Json({})

    def _watch(self, page: str, metrics: set[str]) -> None:
        self._watched.pop(page, None)
        self._watched[page] = metrics
        if len(self._watched) > 2 * MAX_FEEDS:
            del self._watched[next(iter(self._watched))]

    async def events(self, request: Request) -> Response:
        """What is new while the browser stays: of the metrics that its page watches, or without a page of all."""
        await asyncio.to_thread(self._hub.ask)
        names = [name for name in request.query_params.getlist("run") if name in self._hub.runs]
        page = _read_page(request)

        def wanted() -> set[str] | None:
            return self._watched.get(page, set()) if page else None

        feed = Feed(self._hub, names, _read_view(request), wanted, _read_cursor(request, names))
        if self._feeds >= MAX_FEEDS:
            raise HTTPException(503, f"{MAX_FEEDS} pages are open already")

        async def stream() -> AsyncIterator[str]:
            self._feeds += 1
            try:
                async for event in feed.stream(self._is_stopping):
                    yield event
            finally:
                self._feeds -= 1

        # Identity: the compressor would hold events back until it has enough of them.
        headers = {"content-encoding": "identity", "x-accel-buffering": "no"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)

    async def _find_run(self, request: Request) -> Run:
        return (await self._find_runs(request))[0]

    async def _find_runs(self, request: Request) -> list[Run]:
        if runs := await self._list_runs(request):
            return runs
        raise HTTPException(404, "there is no such run")

    async def _list_runs(self, request: Request) -> list[Run]:
        await asyncio.to_thread(self._hub.ask)
        known, names = dict(self._hub.runs), dict.fromkeys(request.query_params.getlist("run"))
        return [known[name] for name in names if name in known]


def _read_view(request: Request) -> View:
    query = request.query_params
    axis = query.get("axis", "step")
    if axis not in AXES:
        raise HTTPException(400, f"axis must be one of {', '.join(AXES)}")
    return View(
        axis,
        round(_number(request, "window", 1, 1, MAX_WINDOW)),
        round(_number(request, "points", 800, 20, MAX_POINTS)),
        _number(request, "start", -math.inf),
        _number(request, "end", math.inf),
    )


def _number(request: Request, key: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
    try:
        value = float(request.query_params.get(key, default))
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise HTTPException(400, f"{key} must be a number from {low:g} to {high:g}")
    return value


def _text(request: Request, key: str) -> str:
    if key not in request.query_params:
        raise HTTPException(400, f"{key} is missing")
    return request.query_params[key]


def _read_page(request: Request) -> str:
    """What a page calls itself; nothing, if another program asks."""
    return request.query_params.get("page", "")[:MAX_PAGE_NAME]


def _read_cursor(request: Request, names: list[str]) -> dict[str, list[int]]:
    """Where a browser that lost its connection had got to."""
    try:
        values = json.loads(request.headers.get("last-event-id", "{}"))
        cursors = {name: [int(number) for number in values[name]] for name in names if name in values}
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return {}
    return {name: numbers for name, numbers in cursors.items() if len(numbers) == 2 * len(SERIES) and min(numbers) >= 0}


def _as_json(value: Any) -> Any:
    """The value of an option; JSON has no infinity."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


async def _json(load: Callable[[], Any]) -> Response:
    return Json(await _read(load))


async def _read(load: Callable[[], Any]) -> Any:
    try:
        return await asyncio.to_thread(load)
    except OSError:
        raise HTTPException(404, "the file is not there, or not in the folder of the run") from None


def _csv_line(*cells: object) -> str:
    with io.StringIO() as file:
        csv.writer(file).writerow(cells)
        return file.getvalue()
