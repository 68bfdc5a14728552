"""The server: uvicorn on one socket, which stops listening first when it ends, and answers what was sent before."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

_BACKLOG = 2048  # connections that may wait until they are accepted
_HEADERS = 64 << 10  # bytes of a request before its body
_IDLE = 75  # seconds: longer than clients keep a connection, or they send on one that is being closed
_HANDSHAKE = 0.1  # second for a connection that has begun when the server ends
_GRACE = 1.0  # second for a request that is on its way when the server ends
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER of Linux, and a program that drops what asks for a connection:
_NO_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 2), (6, 0, 0, 0), (6, 0, 0, 0xFFFFFFFF))  # returns 0 bytes if SYN is set


class Server(uvicorn.Server):
    """uvicorn's server, which by itself resets connections that wait, or whose request is on its way, at its end."""

    def __init__(self, app: Any):
        config = uvicorn.Config(
            app,
            http=H11Protocol,
            ws="none",
            proxy_headers=False,
            backlog=_BACKLOG,
            h11_max_incomplete_event_size=_HEADERS,
            timeout_keep_alive=_IDLE,
            log_level="warning",
            access_log=False,
            server_header=False,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE_HEADER]
        for bound in sockets or ():
            _stop_listening(bound)
        await asyncio.sleep(_HANDSHAKE)
        waiting = [connection for bound in sockets or () for connection in _waiting(bound)]
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        for connection in waiting:
            protocol = functools.partial(H11Protocol, self.config, self.server_state, self.lifespan.state)
            await loop.connect_accepted_socket(protocol, connection)
        end = loop.time() + _GRACE
        await asyncio.sleep(0.02)  # reads from all connections
        while self.server_state.connections and loop.time() < end:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def _stop_listening(bound: socket.socket) -> None:
    """Lets no connection begin (on Linux). To close the socket would reset those that wait to be accepted."""
    if sys.platform == "linux":
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _NO_SYN))
        size_and_place = struct.pack("HP", len(_NO_SYN), ctypes.addressof(program))
        bound.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, size_and_place)


def _waiting(bound: socket.socket) -> Iterator[socket.socket]:
    """The connections that wait to be accepted."""
    while True:
        try:
            yield bound.accept()[0]
        except BlockingIOError:
            return
        except OSError:  # of one connection
            continue


def bind(host: str = "127.0.0.1", port: int = 8000) -> tuple[socket.socket, str]:
    """A socket that does not listen yet, and its URL; port 0 is any free one. OSError if the port is taken."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or bodies wait for the ACK of their headers
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    address, number = bound.getsockname()[:2]
    return bound, f"http://{f'[{address}]' if ':' in address else address}:{number}"


@contextlib.contextmanager
def listening(app: Any, bound: socket.socket) -> Iterator[Callable[[], None]]:
    """Clients can connect, and the function that it gives serves them until SIGTERM or Ctrl-C."""
    server = Server(app)
    # uvicorn handles SIGTERM from its start, and raises it again when all is answered: the process then ends by itself.
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        bound.listen(_BACKLOG)
        yield lambda: server.run([bound])
    finally:
        signal.signal(signal.SIGTERM, before)
