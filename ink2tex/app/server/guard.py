"""What every request passes: the token, the headers of safety, the counts, the last net for bugs."""

from __future__ import annotations

import hmac
import time
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ink2tex.app.server.metrics import Metrics
from ink2tex.app.server.problems import Problem, internal

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
}
_ROUTES: Final = {
    "/v1/recognize": "recognize",
    "/v1/recognize/batch": "batch",
    "/v1/model": "model",
    "/healthz": "health",
    "/readyz": "health",
    "/metrics": "metrics",
    "/": "page",
}


def route_of(path: str) -> str:
    """The name of a path in the metrics."""
    return _ROUTES.get(path, "page" if path.startswith("/static/") else "other")


class Guard:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, metrics: Metrics, token: str | None = None) -> None:
        self._app, self._metrics = app, metrics
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = route_of(scope["path"])
        start = time.monotonic()
        status = 0

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-cache" if route == "page" else "no-store")
            await send(message)

        try:
            if not self._allowed(scope):
                problem = Problem(
                    "unauthorized",
                    "This server wants a token: send 'Authorization: Bearer TOKEN'.",
                    headers={"WWW-Authenticate": 'Bearer realm="ink2tex"'},
                )
                await problem.response()(scope, receive, guarded)
            else:
                await self._app(scope, receive, guarded)
        except Exception as error:
            if status:  # the answer has begun: nothing can be said any more
                raise
            await internal(error).response()(scope, receive, guarded)
        finally:
            self._metrics.request(route, status)
            if route in ("recognize", "batch"):
                self._metrics.observe("ink2tex_request_seconds", time.monotonic() - start)

    def _allowed(self, scope: Scope) -> bool:
        """The token is asked for where work is done; the page and the health checks are for everybody."""
        path = scope["path"]
        if self._token is None or not (path.startswith("/v1/") or path == "/metrics"):
            return True
        if scope["method"] == "OPTIONS":
            return True  # browsers ask without it; there is nothing to learn
        kind, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token)
