"""What every request passes before its path answers: host, key, size, time, and the counts of them."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, get_type_hints

from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from jaxwhiten.serving.protocol import Refused, refusal, request_of

_BODY = 8 << 20  # bytes of a request
# of all unanswered requests, beyond which only small ones are accepted
_BODIES = 32 * _BODY
_SMALL = 64 << 10
# bytes of a refused request, and seconds to send them, that are read before its answer if it is the last one
_DROPPED = 64 << 20
_SECONDS = 10.0
_WATCHED = 0.05  # seconds after which an answer is given up if its caller goes away; a task for each request costs time
ACCESS = logging.getLogger("jaxwhiten.access")  # a line for each request, of level INFO


class Gate:
    """Checks the host and the key of requests, limits their size and the time to send them, and counts them.

    `/health` needs no key. `hosts` are the names by which requests may call the server, beside IP addresses, which no
    web page can give to a name of its own; None allows all.
    """

    def __init__(self, key: str | None, hosts: Sequence[str] | None, seconds: float, registry: CollectorRegistry):
        self._key = key and key.encode()
        self._seconds = seconds
        self._held = 0
        self._hosts = None if hosts is None else {"localhost", *map(str.lower, hosts)}
        self.requests = Counter("jaxwhiten_requests", "Requests answered", ["path", "status"], registry=registry)
        help_text = "Seconds from request to answer"
        self.times = Histogram("jaxwhiten_request_seconds", help_text, ["path"], registry=registry)

    async def unknown(self, request: Request, error: HTTPException) -> Response:
        """The answer on a path or method that is not there."""
        start = time.perf_counter()
        self.requests.labels("other", error.status_code).inc()
        await _read_on(request, request.stream())
        response = await refusal(request, error)
        _log(request, response.status_code, start)
        return response

    async def answer(self, request: Request, route: Route) -> Response:
        """What the function of a route answers, or why it does not."""
        start = time.perf_counter()
        try:
            response = await self._answer(request, route)
        except Exception as error:
            response = await refusal(request, error)
            if response.status_code == 500:
                logging.exception(route.path)
        self.requests.labels(route.path, response.status_code).inc()
        self.times.labels(route.path).observe(time.perf_counter() - start)
        _log(request, response.status_code, start)
        return response

    async def _answer(self, request: Request, route: Route) -> Any:
        stream = request.stream()
        with self._holding() as hold:
            try:
                self._check(request, route)
                if route.asked is None:
                    return await route.endpoint(**request.path_params)
                async with asyncio.timeout(self._seconds):
                    parsed = request_of(route.asked, await _body(request, stream, hold))
            except TimeoutError:
                raise Refused(408, f"The request took more than {self._seconds:g} seconds to arrive.") from None
            except Refused:
                await _read_on(request, stream)
                raise
            return await _while_awaited(request, route.endpoint(parsed))

    def _check(self, request: Request, route: Route) -> None:
        """Refuses hosts of other names, and requests without the key."""
        if not self._knows(host := request.headers.get("host", "localhost")):
            raise Refused(421, f"Unknown host {host!r:.80}: start the server with `--allow-host` to allow it.")
        if self._key and route.path != "/health":
            scheme, _, credential = request.headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(credential.strip().encode("latin-1"), self._key)
            if not right or scheme.lower() != "bearer":
                expected = "Expected the access key as `Authorization: Bearer KEY`."
                raise Refused(401, expected, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

    def _knows(self, host: str) -> bool:
        """Whether requests may call the server by the name in a `Host` header. No web page's name is an IP address."""
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        return self._hosts is None or name.lower().removesuffix(".") in self._hosts

    @contextlib.contextmanager
    def _holding(self) -> Iterator[Callable[[int], None]]:
        """Counts the bytes of a request until it is answered; refuses too many, of one request or of all."""
        held = 0

        def hold(more: int) -> None:
            nonlocal held
            if held + more > _BODY:
                raise Refused(413, f"The body is longer than {_BODY:,} bytes.")
            if self._held + more > _BODIES and held + more > _SMALL:
                raise Refused(429, "Too many long requests: retry later.", wait=5)
            held += more
            self._held += more

        try:
            yield hold
        finally:
            self._held -= held


def _log(request: Request, status: int, start: float) -> None:
    """Logs who asked for what, the answer's status and its time."""
    if ACCESS.isEnabledFor(logging.INFO):
        host = request.client.host if request.client else "-"
        path = request.scope.get("raw_path", b"").decode("ascii", "backslashreplace")
        took = 1000 * (time.perf_counter() - start)
        ACCESS.info("%s %s %s %d %.1f ms", host, request.method, path, status, took)


async def _read_on(request: Request, stream: AsyncIterator[bytes]) -> None:
    """Reads what a client still sends before the connection is closed, which would reset it, and lose the answer."""
    if request.headers.get("connection", "").lower() != "close" or "expect" in request.headers:
        return  # uvicorn reads on after the answer; or the client waits for it
    left = _DROPPED
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(_SECONDS):
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    break


async def _body(request: Request, stream: AsyncIterator[bytes], hold: Callable[[int], None]) -> bytearray:
    """The JSON that a request carries."""
    kind = request.headers.get("content-type", "").partition(";")[0].rstrip().lower()
    if not kind.endswith("json"):  # browsers send other kinds for any web page unasked
        raise Refused(422, "Expected `Content-Type: application/json`.")
    if (coding := request.headers.get("content-encoding", "identity").strip().lower()) != "identity":
        raise Refused(415, f"Content-Encoding {coding!r:.80}: send the body uncompressed.")
    body = bytearray()
    async for chunk in stream:
        hold(len(chunk))
        body += chunk
    return body


async def _while_awaited(request: Request, answer: Any) -> Any:
    """An answer, which is not worked on further if its caller goes away."""
    answering = asyncio.current_task()
    left: asyncio.Future[Any] | None = None

    def stop(_: object) -> None:
        if answering is not None:
            answering.cancel()

    def watch() -> None:
        nonlocal left
        left = asyncio.ensure_future(request.receive())
        left.add_done_callback(stop)  # or its texts are encoded for nobody

    timer = asyncio.get_running_loop().call_later(_WATCHED, watch)
    try:
        return await answer
    except asyncio.CancelledError:
        if left is not None and left.done():
            raise ClientDisconnect from None
        raise
    finally:
        timer.cancel()
        if left is not None:
            left.remove_done_callback(stop)
            left.cancel()


class Route(APIRoute):
    """A route through the `gate` of its application. Pydantic reads the body itself, faster than through FastAPI."""

    def get_route_handler(self) -> Any:
        self.asked = get_type_hints(self.endpoint).get("asked")

        async def answered(request: Request) -> Response:
            response: Response = await request.app.state.gate.answer(request, self)
            return response

        return answered
