"""How connections end: after the answers to all that was sent before, and so that clients read the last one."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.serving.conftest import served

pytest.importorskip("fastapi")

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
MEGA = 1 << 20


def connection_module():
    from jaxwhiten.serving import connection  # or the tests are skipped

    return connection


class Answers:
    """A server of a tiny application, which can hold its event loop."""

    def __init__(self):
        from jaxwhiten import serving
        from jaxwhiten.serving.server import Server, config_of

        self.held, self.release = threading.Event(), threading.Event()
        self.listening, _ = serving.listen(port=0)
        self.address = self.listening.getsockname()
        self.server = Server(config_of(self))
        self.thread = threading.Thread(target=self.server.run, args=([self.listening],))
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
        return self.connections.enter_context(socket.create_connection(self.address, timeout=10))

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
        self.end()
        self.thread.join(20)
        self.connections.close()
        self.listening.close()
        assert not self.thread.is_alive()


def read(connection):
    """An answer; OSError if the connection was reset."""
    answer = b""
    while not answer.endswith((b"ok", b"}", b"bytes.", b"received.")) and (more := connection.recv(1 << 16)):
        answer += more
    return answer


@pytest.fixture
def answers():
    with Answers() as server:
        yield server


@pytest.mark.parametrize("kind", ["kept", "begun", "silent", "waiting"])
def test_what_was_sent_before_the_end_is_answered(answers, monkeypatch, kind):
    """The kernel accepts connections, and their requests, before the server does; and clients send a moment later."""
    monkeypatch.setattr(connection_module(), "_GRACE", 10.0)
    connections, rest = [answers.connect() for _ in range(5)], GET
    for connection in connections:
        if kind == "kept":
            assert b"connection: close" not in answers.ask(connection)
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
        assert b"connection: close" in answer
    with pytest.raises(ConnectionRefusedError):
        answers.connect()


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
    with server.connections, server.listening:
        connection = server.connect()
        connection.sendall(GET)
        serving.run(server, server.listening)
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
    monkeypatch.setattr(connection_module(), "_GRACE", 0.1)
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
CHUNKED, LENGTH = b"Transfer-Encoding: chunked\r\n\r\n", b"Content-Length: 12582912\r\n\r\n"
REFUSED = {  # status, start of the request, and pieces of the rest
    "a long body": (413, HEAD + KEY + LENGTH, [b"a" * MEGA] * 12),
    "a long body in chunks": (413, HEAD + KEY + CHUNKED, [b"100000\r\n" + b"a" * MEGA + b"\r\n"] * 12),
    "no key": (401, HEAD + LENGTH, [b"a" * MEGA] * 12),
    "no such path": (404, POST % b"/nowhere" + KEY + LENGTH, [b"a" * MEGA] * 12),
    "another coding": (415, HEAD + KEY + b"Content-Encoding: br\r\n" + LENGTH, [b"a" * MEGA] * 12),
    "a slow body": (408, HEAD + KEY + LENGTH, [b"a"] * 6),
    "a long header": (431, HEAD + b"X: ", [b"a" * MEGA] * 12),
    "many headers": (431, HEAD, [b"a: b\r\n" * (MEGA // 6)] * 12),
    "noise": (400, GET.replace(b" /", b" /health") + b"\0" * 1000, [b"\0" * MEGA] * 12),
}


@pytest.fixture(scope="module")
def guarded(tiny):
    with served(tiny, key="k", seconds=0.2) as server:
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
            time.sleep(0.08 if status == 408 else 0)
        answer = read(connection)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in answer.lower()
        assert connection.recv(100) == b""


def test_a_client_that_sends_before_it_reads(guarded):
    """Python's own reads no answer once it could not send."""
    head = {"Content-Type": "application/json", "Authorization": "Bearer k"}
    request = urllib.request.Request(f"{guarded.url}/v1/embeddings", b"a" * (30 * MEGA), head)
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=10)
    assert raised.value.code == 413
    raised.value.close()


@pytest.mark.parametrize("bound", ["_DROPPED", "_SECONDS"])
def test_dropping_is_bounded(answers, monkeypatch, bound):
    monkeypatch.setattr(connection_module(), bound, 0.1)
    connection = answers.connect()
    answer = answers.ask(connection, POST % b"/" + b"Content-Length: 1000000000\r\n\r\n")
    assert b"connection: close" in answer
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(100):
            connection.sendall(b"a")
            time.sleep(0.01)
        pytest.fail("the server still reads")
    assert not answers.server.server_state.connections


def test_a_connection_is_kept_after_a_request_in_pieces(answers):
    connection = answers.connect()
    for _ in range(3):
        connection.sendall(POST % b"/read" + b"Content-Length: 2\r\n\r\n{")
        time.sleep(0.02)
        assert b"connection: close" not in answers.ask(connection, b"}")
