"""The files of the page itself, in memory and compressed: a browser asks for all of them at once."""

import gzip
import hashlib
import mimetypes
from pathlib import Path
from typing import NamedTuple

import bokeh
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
CHARTS = Path(bokeh.__file__).parent / "server/static/js"
CHART_FILES = ("bokeh.min.js", "bokeh-api.min.js")  # as in library.js
PAGE = "index.html"
NO_MODULES = ("theme.js",)  # which runs before anything is drawn
MODULES = b"<!-- modules -->"


class Asset(NamedTuple):
    """A file as it is sent."""

    body: bytes
    compressed: bytes
    kind: str | None
    tag: str

    @classmethod
    def make(cls, name: str, body: bytes) -> "Asset":
        kind, tag = mimetypes.guess_type(name)[0], f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        return cls(body, gzip.compress(body, compresslevel=1), kind, tag)

    def answer(self, request: Request, cache: str) -> Response:
        """The file, or that the browser has it already."""
        headers = {"cache-control": cache, "etag": self.tag, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.body, media_type=self.kind, headers=headers)
        return Response(self.compressed, media_type=self.kind, headers={**headers, "content-encoding": "gzip"})


class Assets:
    """All of them, by name: nothing else can be asked for."""

    def __init__(self):
        files = {path.name: path.read_bytes() for path in STATIC.iterdir()}
        # A browser would ask for modules one after the other, as they name each other.
        modules = sorted(name for name in files if name.endswith(".js") and name not in NO_MODULES)
        links = "\n    ".join(f'<link rel="modulepreload" href="/static/{name}" />' for name in modules)
        page = files.pop(PAGE).replace(MODULES, links.encode())
        self._page = Asset.make(PAGE, page)
        self._static = {name: Asset.make(name, body) for name, body in files.items()}
        self._charts = {name: Asset.make(name, (CHARTS / name).read_bytes()) for name in CHART_FILES}

    async def page(self, request: Request) -> Response:
        """The page itself."""
        return self._page.answer(request, "no-cache")

    async def static(self, request: Request) -> Response:
        """A part of it."""
        return _find(self._static, request).answer(request, "no-cache")

    async def charts(self, request: Request) -> Response:
        """The chart library, from its own package."""
        return _find(self._charts, request).answer(request, "max-age=86400")


def _find(assets: dict[str, Asset], request: Request) -> Asset:
    if asset := assets.get(request.path_params["file"]):
        return asset
    raise HTTPException(404, "there is no such file")
