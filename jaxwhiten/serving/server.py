"""The server: uvicorn on one socket, which answers what was sent before it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.flow_control import CLOSE_HEADER

from jaxwhiten.serving.connection import Protocol

_BACKLOG = 2048  # connections that may wait until they are accepted


class Server(uvicorn.Server):
    """uvicorn's server, which closed its socket before it accepted the connections whose requests waited there."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        waiting = [connection for listening in sockets or () for connection in _waiting(listening)]
        for server in self.servers:
            server.close()
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE_HEADER]
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        for _ in range(2):  # each reads from all connections, those that were idle, too
            await asyncio.sleep(0)
        await super().shutdown(sockets)

    def _protocol(self) -> Protocol:
        return Protocol(self.config, self.server_state, self.lifespan.state)


def _waiting(listening: socket.socket) -> Iterator[socket.socket]:
    """The connections that wait to be accepted."""
    for _ in range(2 * _BACKLOG):  # or clients that come faster would keep the server
        try:
            yield listening.accept()[0]
        except BlockingIOError:
            return
        except OSError:  # of one connection
            continue


def config_of(app: Any) -> uvicorn.Config:
    """How uvicorn serves an application."""
    idle = 75  # seconds: longer than clients keep a connection, or they send on one that is being closed
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        proxy_headers=False,
        timeout_keep_alive=idle,
        log_level="warning",
        access_log=False,
        server_header=False,
    )


def listen(host: str = "127.0.0.1", port: int = 8000) -> tuple[socket.socket, str]:
    """A socket that listens, and its URL; port 0 is any free one. OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or bodies wait for the ACK of their headers
    address, number = listening.getsockname()[:2]
    return listening, f"http://{f'[{address}]' if ':' in address else address}:{number}"


def run(app: Any, listening: socket.socket) -> None:
    """Serves an application until SIGTERM or Ctrl-C; requests that were sent before are answered."""
    server = Server(config_of(app))
    # uvicorn handles SIGTERM from its start, and raises it again when all is answered: the process then ends by itself.
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        server.run([listening])
    finally:
        signal.signal(signal.SIGTERM, before)
