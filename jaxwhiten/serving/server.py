"""The server: uvicorn on one socket, and the limits of what callers may ask for."""

from __future__ import annotations

import asyncio
import hmac
import signal
import socket
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import Request

from jaxwhiten.serving.protocol import Refused, refusal

_BODY = 8 << 20  # bytes of a request


class Guard:
    """ASGI middleware: checks the key of requests, except to `/health`, limits their size and time, and counts them.

    A request whose caller goes away is stopped, so that its texts are not encoded for nobody.
    """

    def __init__(self, app: Any, key: str | None, seconds: float, registry: CollectorRegistry):
        self.app, self.seconds = app, seconds
        self.expected = f"Bearer {key}".encode() if key else None
        self.requests = Counter("jaxwhiten_requests", "Requests answered", ["path", "status"], registry=registry)
        about = "Seconds from request to answer"
        self.times = Histogram("jaxwhiten_request_seconds", about, ["path"], registry=registry)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, seen, status = time.perf_counter(), 0, 0
        answering, watching = asyncio.current_task(), list[asyncio.Task[None]]()

        async def watch() -> None:
            await receive()  # after the body, nothing comes but that the caller went away, or has the answer
            if answering is not None and not status:
                answering.cancel()

        async def limited() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > _BODY:
                raise Refused(413, f"The body is longer than {_BODY:,} bytes.")
            if not message.get("more_body"):
                watching.append(asyncio.create_task(watch()))
            return message

        async def noted(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if self.expected and scope["path"] != "/health" and not hmac.compare_digest(given, self.expected):
                raise Refused(401, "Expected the access key as `Authorization: Bearer KEY`.", code="invalid_api_key")
            async with asyncio.timeout(self.seconds):
                await self.app(scope, limited, noted)
        except (Refused, TimeoutError) as error:
            late = Refused(503, f"The request took more than {self.seconds:g} seconds.", wait=5)
            if not status:
                told = await refusal(Request(scope), error if isinstance(error, Refused) else late)
                await told(scope, receive, noted)
        except asyncio.CancelledError:
            if not watching or not watching[0].done():
                raise  # it was not the caller
            status = 499  # as of nginx
        finally:
            for task in watching:
                task.cancel()
            path = getattr(scope.get("route"), "path", "other")
            self.requests.labels(path, status or 500).inc()
            self.times.labels(path).observe(time.perf_counter() - start)


def listen(host: str = "127.0.0.1", port: int = 8000) -> tuple[socket.socket, str]:
    """A socket that listens, and its URL; port 0 is any free one. OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=2048)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or bodies wait for the ACK of their headers
    shown, number = listening.getsockname()[:2]
    return listening, f"http://{f'[{shown}]' if ':' in shown else shown}:{number}"


def run(app: Any, listening: socket.socket) -> None:
    """Serves an application until SIGTERM or Ctrl-C; requests that were accepted are answered first."""
    import uvicorn

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none"
    )
    # uvicorn raises SIGTERM again when all is answered: the process then ends by itself.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        uvicorn.Server(config).run([listening])
    finally:
        signal.signal(signal.SIGTERM, before)
