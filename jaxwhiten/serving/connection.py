"""Connections: HTTP by httptools, with a limit for headers, and an end at which clients can read the last answer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

_HEADERS = 64 << 10  # bytes of a request before its body, and after it
# bytes of a request, and seconds to send them, that are dropped after its answer
_DROPPED = 64 << 20
_SECONDS = 30.0
_GRACE = 1.0  # second for a request that is on its way when the server ends
_BUFFER = bytearray(1 << 18)  # of what is dropped, by all connections


class Transport(asyncio.BufferedProtocol):
    """The transport as uvicorn uses it. Closed in the middle of a request, it first reads the rest, and drops it.

    Data that arrives at a closed socket resets the connection: the client would get an error instead of the answer.
    """

    def __init__(self, transport: Any, protocol: Protocol):
        self._transport = transport
        self._left = _DROPPED
        self.protocol: Protocol | None = protocol  # until the connection is lost
        self.keep_alive = True  # after the answer to the request
        self._end: asyncio.TimerHandle | None = None
        self.write = transport.write
        self.is_closing = transport.is_closing

    def close(self) -> None:
        if self.protocol is None or self.is_closing():
            return
        if not self.protocol.unfinished:
            self._transport.close()
            return
        self.write = lambda data: None
        self.is_closing = lambda: True
        cycle = self.protocol.cycle
        if cycle is not None and not cycle.response_complete:  # its request became unreadable
            cycle.disconnected = True
            cycle.message_event.set()
        self._transport.set_protocol(self)
        self._transport.resume_reading()
        with contextlib.suppress(OSError):  # the client is gone
            self._transport.write_eof()
        self.close_in(_GRACE if self.protocol.ending else _SECONDS)

    def close_in(self, seconds: float) -> None:
        """Ends the dropping after some seconds."""
        self._end = asyncio.get_running_loop().call_later(seconds, self._transport.close)

    def get_buffer(self, sizehint: int) -> bytearray:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left < 0:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end:
            self._end.cancel()
        if self.protocol:
            self.protocol.connection_lost(exc)


class Protocol(HttpToolsProtocol):
    """HTTP by httptools, which sets no limit for headers, and takes quadratic time to join the parts of a long one."""

    transport: Transport  # type: ignore[assignment]
    _pending = 0  # bytes since the parser last came to an end: of the headers, a piece of the body, or the request

    @property
    def unfinished(self) -> bool:
        """Whether a request has begun and not come to its end."""
        return self._pending > 0 or (self.cycle is not None and self.cycle.more_body)

    @property
    def ending(self) -> bool:
        """Whether the server ends."""
        return CLOSE_HEADER in self.server_state.default_headers

    def connection_made(self, transport: Any) -> None:  # uvloop's is no asyncio.Transport
        super().connection_made(transport)
        self.transport = Transport(transport, self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.transport.protocol = None  # or only the garbage collector would free them

    def data_received(self, data: bytes) -> None:
        self._pending += len(data)
        super().data_received(data)
        if self._pending > _HEADERS and not self.transport.is_closing():
            self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        if self._pending <= _HEADERS:
            self._pending += 1  # also after a whole request: what follows cannot be read as one
            super().send_400_response(msg)
            return
        message = f"The headers are longer than {_HEADERS:,} bytes.".encode()
        head = b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(message)
        self.transport.write(STATUS_LINE[431] + head + message)
        self.transport.close()

    def on_headers_complete(self) -> None:
        if self._pending > _HEADERS and len(self.url) + sum(len(a) + len(b) + 4 for a, b in self.headers) > _HEADERS:
            raise ValueError("headers")  # uvicorn answers it by `send_400_response`
        self._pending = 0
        super().on_headers_complete()
        # An answer before the end of its request is the last one: nobody knows how much the client still sends.
        self.transport.keep_alive = self.cycle.keep_alive
        self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending = 0
        super().on_message_complete()
        if not self.cycle.response_started:
            self.cycle.keep_alive = self.transport.keep_alive

    def shutdown(self) -> None:
        """Ends the connection after the answers to requests that have begun, or may be on their way."""
        self.transport.keep_alive = False
        if self.transport.is_closing():
            self.transport.close_in(_GRACE)
        elif self.cycle is None or (self._pending and self.cycle.response_complete):
            self.loop.call_later(_GRACE, super().shutdown)
        else:
            super().shutdown()
