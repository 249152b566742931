"""Who may read: this machine's browsers, or whoever has the token where the server listens on other addresses."""

import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

COOKIE = "dreamfleet_token"


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access:
    """Answers what is not allowed itself, and lets the rest through.

    Without a token the name in the request must be one of this machine: another site cannot read runs by giving its own
    name the address 127.0.0.1. With one, a link that has it is exchanged for a cookie, so that it does not stay in the
    address, in the history or in what is shared.
    """

    def __init__(self, app: ASGIApp, token: str = ""):
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, b"this server only answers questions (GET)")
        elif not self._token:
            if is_loopback(_host_name(headers.get(b"host", b""))):
                await self._app(scope, receive, send)
            else:
                await _answer(send, 421, b"this server is for browsers on its own machine: use its address")
        elif self._is_known(_cookie(headers.get(b"cookie", b""))):
            await self._app(scope, receive, send)
        else:
            await self._exchange(scope, send)

    async def _exchange(self, scope: Scope, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=100) if scope["path"] == "/" else {}
        token = (query.pop("token", None) or [""])[0]
        if not self._is_known(token.encode("utf-8", "surrogateescape")):
            await _answer(send, 403, b"open the link with the token that `dreamfleet dashboard` has printed")
            return
        location = f"/?{urlencode(query, doseq=True)}" if query else "/"
        cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(send, 303, b"", [(b"location", location.encode()), (b"set-cookie", cookie.encode())])

    def _is_known(self, token: bytes) -> bool:
        return hmac.compare_digest(token, self._token)


def _host_name(header: bytes) -> str:
    host = header.decode("latin-1")
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]


def _cookie(header: bytes) -> bytes:
    try:
        cookie = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return b""
    return cookie.value.encode("latin-1") if cookie else b""


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    always = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": [*always, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})
