"""The server: uvicorn on one socket, and what every request passes."""

from __future__ import annotations

import asyncio
import hmac
import logging
import signal
import socket
import time
from typing import Any, get_type_hints

import uvicorn
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from jaxwhiten.serving.protocol import Refused, refusal

_BODY = 8 << 20  # bytes of a request


class Gate:
    """Checks the key of requests, except to `/health`, limits their size and time, and counts them."""

    def __init__(self, key: str | None, seconds: float, registry: CollectorRegistry):
        self.seconds, self.expected = seconds, f"Bearer {key}".encode() if key else None
        self.requests = Counter("jaxwhiten_requests", "Requests answered", ["path", "status"], registry=registry)
        about = "Seconds from request to answer"
        self.times = Histogram("jaxwhiten_request_seconds", about, ["path"], registry=registry)

    async def unknown(self, request: Request, error: HTTPException) -> Response:
        """The answer on a path or method that is not there."""
        self.requests.labels("other", error.status_code).inc()
        return await refusal(request, error)

    async def answer(self, request: Request, route: Route) -> Response:
        """What the function of a route answers, or why it does not."""
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self.seconds):
                response = await self._answer(request, route)
        except TimeoutError:
            late = Refused(503, f"The request took more than {self.seconds:g} seconds.", wait=5)
            response = await refusal(request, late)
        except Exception as error:
            response = await refusal(request, error)
            if response.status_code == 500:
                logging.exception(route.path)
        self.requests.labels(route.path, response.status_code).inc()
        self.times.labels(route.path).observe(time.perf_counter() - start)
        return response

    async def _answer(self, request: Request, route: Route) -> Any:
        given = request.headers.get("authorization", "").encode("latin-1")
        if self.expected and route.path != "/health" and not hmac.compare_digest(given, self.expected):
            raise Refused(401, "Expected the access key as `Authorization: Bearer KEY`.", code="invalid_api_key")
        if route.asked is None:
            return await route.endpoint()
        asked = route.asked.model_validate_json(await _body(request))
        answering, left = asyncio.current_task(), asyncio.ensure_future(request.receive())

        def stop(_: Any) -> None:
            if answering is not None:
                answering.cancel()

        left.add_done_callback(stop)  # or its texts are encoded for nobody
        try:
            return await route.endpoint(asked)
        except asyncio.CancelledError:
            if left.done():
                raise ClientDisconnect from None
            raise
        finally:
            left.remove_done_callback(stop)
            left.cancel()


async def _body(request: Request) -> bytearray:
    """The JSON that a request carries."""
    body, kind = bytearray(), request.headers.get("content-type", "").partition(";")[0]
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY:
            raise Refused(413, f"The body is longer than {_BODY:,} bytes.")
    if not kind.rstrip().lower().endswith("json"):  # browsers send other kinds for any web page unasked
        raise Refused(422, "Expected `Content-Type: application/json`.")
    return body


class Route(APIRoute):
    """A route through the `gate` of its application. Pydantic reads the body itself, faster than through FastAPI."""

    def get_route_handler(self) -> Any:
        self.asked = get_type_hints(self.endpoint).get("asked")

        async def answered(request: Request) -> Response:
            response: Response = await request.app.state.gate.answer(request, self)
            return response

        return answered


def listen(host: str = "127.0.0.1", port: int = 8000) -> tuple[socket.socket, str]:
    """A socket that listens, and its URL; port 0 is any free one. OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=2048)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or bodies wait for the ACK of their headers
    shown, number = listening.getsockname()[:2]
    return listening, f"http://{f'[{shown}]' if ':' in shown else shown}:{number}"


def run(app: Any, listening: socket.socket) -> None:
    """Serves an application until SIGTERM or Ctrl-C; requests that were accepted are answered first."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none"
    )
    # uvicorn raises SIGTERM again when all is answered: the process then ends by itself.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        uvicorn.Server(config).run([listening])
    finally:
        signal.signal(signal.SIGTERM, before)
