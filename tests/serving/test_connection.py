"""Connections: what is read as HTTP, and how they end: after the answers to all that was sent before."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import threading
import time

import pytest

from tests.serving.conftest import served

pytest.importorskip("fastapi")

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
READ = POST % b"/read"
CHUNKED, BODY = b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n"
MEGA = 1 << 20


def server_module():
    from jaxwhiten.serving import server  # or the tests are skipped

    return server


class Answers:
    """A server of a tiny application, which can hold its event loop."""

    def __init__(self):
        from jaxwhiten import serving

        self.held, self.release = threading.Event(), threading.Event()
        self.bound, _ = serving.bind(port=0)
        self.bound.listen(100)
        self.server = server_module().Server(self)
        self.thread = threading.Thread(target=self.server.run, args=([self.bound],))
        self.connections = contextlib.ExitStack()

    async def __call__(self, scope, receive, send):
        """Answers, on /read after the body, and on /hold so late that the server ends before it reads again."""
        while scope["path"] == "/read" and (await receive()).get("more_body"):
            pass
        if scope["path"] == "/hold":
            time.sleep(0.15)  # uvicorn's tick is due,
            await asyncio.sleep(0)  # and follows this at once
            self.held.set()
            self.release.wait(10)
        head = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"ok"})

    def connect(self):
        return self.connections.enter_context(socket.create_connection(self.bound.getsockname(), timeout=10))

    def ask(self, connection, request=GET):
        connection.sendall(request)
        return read(connection)

    def hold(self):
        """From now on the loop does nothing."""
        connection = self.connect()
        connection.sendall(GET.replace(b"/", b"/hold", 1))
        assert self.held.wait(10)

    def end(self):
        self.server.should_exit = True
        self.release.set()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.connections.close()  # or the server waits for them
        self.end()
        self.thread.join(20)
        self.bound.close()
        assert not self.thread.is_alive()


def read(connection):
    """An answer; OSError if the connection was reset."""
    answer = b""
    while not answer.endswith((b"ok", b"}", b"received.")) and (more := connection.recv(1 << 16)):
        answer += more
    return answer


@pytest.fixture
def answers():
    with Answers() as server:
        yield server


@pytest.fixture(scope="module")
def lasting():
    """A server for tests that do not end it."""
    with Answers() as server:
        yield server


LONG = b"a" * 70_000
REQUESTS = {  # what a client sends, and the statuses of the answers; the rest is tested by h11
    "two": (2 * GET, [200, 200]),
    "noise after requests": (2 * GET + READ + CHUNKED + BODY + b"\0" * 100, [200, 200, 200, 400]),
    "two lengths": (READ + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", [400]),
    "a coding": (READ + CHUNKED.replace(b"chunked", b"gzip, chunked") + BODY, [400]),
    "a header that fits": (READ + b"X: " + LONG[:60_000] + b"\r\n" + CHUNKED + BODY, [200]),
    "a long header": (READ + b"X: " + LONG, [400]),
    "a long trailer": (READ + CHUNKED + b"2\r\n{}\r\n0\r\nX: " + LONG, [400]),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_each_request_gets_its_answer(lasting, kind):
    sent, statuses = REQUESTS[kind]
    connection = lasting.connect()
    connection.sendall(sent)
    answer, found = b"", []
    with contextlib.suppress(ConnectionResetError):
        while (found != statuses or found[-1] != 200) and (more := connection.recv(1 << 16)):
            answer += more
            found = list(map(int, re.findall(rb"HTTP/1.1 (\d+)", answer)))
    assert found == statuses
    assert b"200" in lasting.ask(lasting.connect())


@pytest.mark.parametrize("kind", ["kept", "begun", "silent", "waiting"])
def test_what_was_sent_before_the_end_is_answered(answers, monkeypatch, kind):
    """The kernel accepts connections, and their requests, before the server does; and clients send a moment later."""
    monkeypatch.setattr(server_module(), "_GRACE", 10.0)
    connections, rest = [answers.connect() for _ in range(5)], GET
    for connection in connections:
        if kind == "kept":
            assert b"connection: close" not in answers.ask(connection).lower()
        if kind == "begun":
            connection.sendall(GET[:9])
            rest = GET[9:]
    answers.hold()
    if kind == "waiting":
        connections += [answers.connect() for _ in range(40)]
    if kind in ("kept", "waiting"):
        for connection in connections:
            connection.sendall(rest)
        rest = b""
    answers.end()
    for connection in connections:
        answer = answers.ask(connection, rest)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer.lower()
    with pytest.raises(OSError, match=r"refused|timed out"):
        socket.create_connection(answers.bound.getsockname(), timeout=0.3)


def test_sigterm_during_the_start_ends_the_server(monkeypatch):
    """uvicorn has no handler for it yet."""
    import uvicorn

    from jaxwhiten import serving

    load, signals = uvicorn.Config.get_loop_factory, []

    def start(config):
        signals.append(signal.raise_signal(signal.SIGTERM))
        return load(config)

    server = Answers()
    monkeypatch.setattr(uvicorn.Config, "get_loop_factory", start)
    again = threading.Timer(3, lambda: signals.append(os.kill(os.getpid(), signal.SIGTERM)))
    again.start()
    with server.connections, server.bound:
        connection = server.connect()
        connection.sendall(GET)
        with serving.listening(server, server.bound) as serve:
            serve()
        assert read(connection).startswith(b"HTTP/1.1 200 ")
    again.cancel()
    assert len(signals) == 1


STARTS = {
    "nothing": b"",
    "part of a request": GET[:9],
    "part of a second request": GET + GET[:9],
    "part of a body": POST % b"/" + b"Content-Length: 9\r\n\r\n{",
}


@pytest.mark.parametrize("kind", STARTS)
def test_a_client_that_sends_no_more_delays_the_end_a_moment(answers, monkeypatch, kind):
    monkeypatch.setattr(server_module(), "_GRACE", 0.1)
    connection, start = answers.connect(), STARTS[kind]
    connection.sendall(start)
    if start.startswith((GET, b"POST")):
        assert read(connection).startswith(b"HTTP/1.1 200 ")
    begin = time.perf_counter()
    answers.end()
    assert connection.recv(100) == b""
    answers.thread.join()
    assert time.perf_counter() - begin < 3


HEAD, KEY = POST % b"/v1/embeddings", b"Authorization: Bearer k\r\n"
LENGTH = b"Content-Length: 12582912\r\n\r\n"
REFUSED = {  # status, start of the request, and pieces of the rest
    "a long body": (413, HEAD + KEY + LENGTH, [b"a" * MEGA] * 12),
    "a long body in chunks": (413, HEAD + KEY + CHUNKED, [b"100000\r\n" + b"a" * MEGA + b"\r\n"] * 12 + [BODY[-5:]]),
    "no key": (401, HEAD + LENGTH, [b"a" * MEGA] * 12),
    "no such path": (404, POST % b"/nowhere" + KEY + LENGTH, [b"a" * MEGA] * 12),
    "another coding": (415, HEAD + KEY + b"Content-Encoding: br\r\n" + LENGTH, [b"a" * MEGA] * 12),
}


@pytest.fixture(scope="module")
def guarded(tiny):
    with served(tiny, key="k", seconds=5.0) as server:
        yield server


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("closes", [False, True])
def test_a_refusal_is_read_by_a_client_that_still_sends(guarded, kind, closes):
    status, start, pieces = REFUSED[kind]
    if closes:
        start = start.replace(b"application/json\r\n", b"application/json\r\nConnection: close\r\n")
    host, _, port = guarded.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        for piece in [start, *pieces]:  # all of which are sent, without an error
            connection.sendall(piece)
        assert read(connection).startswith(b"HTTP/1.1 %d " % status)
        if closes:
            assert connection.recv(100) == b""
        else:
            connection.sendall(GET.replace(b" /", b" /health"))
            assert read(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("bound", ["_DROPPED", "_SECONDS"])
def test_what_is_read_of_a_refused_request_is_bounded(guarded, monkeypatch, bound):
    from jaxwhiten.serving import gate

    monkeypatch.setattr(gate, bound, 0.1)
    host, _, port = guarded.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(HEAD + b"Connection: close\r\nContent-Length: 1000000000\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")
