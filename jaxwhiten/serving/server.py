"""The server: uvicorn on one socket, with a limit for headers."""

from __future__ import annotations

import signal
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

_HEADERS = 64 << 10  # bytes of a request before its body, and after it


class Protocol(HttpToolsProtocol):
    """HTTP by httptools, which sets no limit for headers, and takes quadratic time to join the parts of a long one."""

    _pending = 0  # bytes since the parser last came to an end: of the headers, a piece of the body, or the request

    def data_received(self, data: bytes) -> None:
        self._pending += len(data)
        super().data_received(data)
        if self._pending > _HEADERS and not self.transport.is_closing():
            self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        if self._pending <= _HEADERS:
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

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending = 0
        super().on_message_complete()


def config_of(app: Any) -> uvicorn.Config:
    """How uvicorn serves an application."""
    quiet: Any = {"log_level": "warning", "access_log": False, "server_header": False}
    idle = 75  # seconds: longer than clients keep a connection, or they send on one that is being closed
    return uvicorn.Config(app, http=Protocol, ws="none", proxy_headers=False, timeout_keep_alive=idle, **quiet)


def listen(host: str = "127.0.0.1", port: int = 8000) -> tuple[socket.socket, str]:
    """A socket that listens, and its URL; port 0 is any free one. OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=2048)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or bodies wait for the ACK of their headers
    shown, number = listening.getsockname()[:2]
    return listening, f"http://{f'[{shown}]' if ':' in shown else shown}:{number}"


def run(app: Any, listening: socket.socket) -> None:
    """Serves an application until SIGTERM or Ctrl-C; requests that were accepted are answered first."""
    # uvicorn raises SIGTERM again when all is answered: the process then ends by itself.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        uvicorn.Server(config_of(app)).run([listening])
    finally:
        signal.signal(signal.SIGTERM, before)
