"""Who may read: this machine's browsers, or whoever has the token where the server listens on other addresses."""

import hashlib
import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

MAX_FIELDS = 2000  # of an address: many runs may be chosen


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
    address, in the history or in what is shared. The cookie goes along with links that are followed from other sites,
    such as a chat, and is named after the token: cookies do not tell the ports of a machine apart.
    """

    def __init__(self, app: ASGIApp, token: str = ""):
        self._app = app
        self._token = token.encode()
        self._cookie = f"dreamfleet_{hashlib.sha256(self._token).hexdigest()[:12]}"

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
        elif scope["path"] == "/" and self._is_known(_token_in(query := _read_query(scope))):
            await self._exchange(query, send)
        elif self._is_known(self._read_cookie(headers.get(b"cookie", b""))):
            await self._app(scope, receive, send)
        else:
            await _answer(send, 403, b"open the link with the token that `dreamfleet dashboard` has printed")

    async def _exchange(self, query: dict[str, list[str]], send: Send) -> None:
        rest = {key: values for key, values in query.items() if key != "token"}
        location = f"/?{urlencode(rest, doseq=True)}" if rest else "/"
        cookie = f"{self._cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Lax"
        await _answer(send, 303, b"", [(b"location", location.encode()), (b"set-cookie", cookie.encode())])

    def _read_cookie(self, header: bytes) -> bytes:
        try:
            cookie = SimpleCookie(header.decode("latin-1")).get(self._cookie)
        except CookieError:
            return b""
        return cookie.value.encode("latin-1") if cookie else b""

    def _is_known(self, token: bytes) -> bool:
        return hmac.compare_digest(token, self._token)


def _host_name(header: bytes) -> str:
    host = header.decode("latin-1")
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]


def _read_query(scope: Scope) -> dict[str, list[str]]:
    try:
        return parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=MAX_FIELDS)
    except ValueError:  # more of them
        return {}


def _token_in(query: dict[str, list[str]]) -> bytes:
    return query.get("token", [""])[0].encode("utf-8", "surrogateescape")


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    always = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": [*always, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})
