"""A server of vectors and of an index under 27 clients, slow and broken ones among them.

    python -m benchmarks.serving_faults [--seconds 600] [--model FOLDER]

At 30% of the time another index takes the place of the index, at 60% SIGKILL ends the server, which is started again,
and at the end SIGTERM while the clients ask. Every answer with vectors is compared with `Encoder.encode`, and every
search with the document whose text it is. A request counts as lost if all of it was sent (before a signal, if there was
one) and no answer came; an addition, if it was answered and is not in the index at the end. Memory is the server's
resident memory.
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import itertools
import json
import random
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.serving import our_command, running, texts_of
from configs.settings import Config, setting
from eval.plotting import COLORS, new_figure
from eval.runs import Run
from jaxwhiten import Encoder, normalize
from jaxwhiten.search import build_index, load_index

_TIMEOUT = 60  # seconds for a request to arrive, by --timeout
_PATIENCE = 600  # seconds until a client gives up, which is no fault of the server
_QUEUE = 2600  # texts that may wait: beside a caller of 2,048, some callers get 429
_KINDS = {"good": 12, "search": 4, "change": 2, "many": 1, "slow": 4, "broken": 4}
_GONE = (BrokenPipeError, ConnectionResetError)
Send = Callable[[http.client.HTTPConnection, str, bytes], bool]  # whether the whole request was sent


@dataclass(slots=True)
class Faults(Config):
    """The settings of benchmarks.serving_faults."""

    seconds: float = setting(600.0, "of the clients")
    model: str = setting(harness.MINILM, "a model ID or folder")


class Clients:
    """What all clients share: the texts with their vectors, and what came of the requests."""

    def __init__(self, port: int, texts: list[str], right: np.ndarray):
        self.port = port
        self.texts = texts
        self.right = right
        self.end = threading.Event()
        self.signalled = float("inf")
        self.killed = (float("inf"), 0.0)
        self.statuses: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.times: dict[str, list[float]] = collections.defaultdict(list)
        self.counts: collections.Counter[str] = collections.Counter()
        self.numbers = itertools.count()
        self.added = set[str]()
        self.lock = threading.Lock()

    def run(self, kind: str, number: int) -> None:
        """One client, until the server is gone."""
        rng = random.Random(number)
        request = getattr(self, kind)
        while not self.end.is_set() and time.perf_counter() < self.signalled:
            try:
                request(rng)
            except (OSError, http.client.HTTPException):
                self.end.wait(0.1)

    def answered(self, kind: str, path: str, body: bytes, send: Send) -> tuple[int, Any]:
        """Sends a request; its status, 0 if there was no answer, and the content of an answer with status 200."""
        start = time.perf_counter()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)) as connection:
            complete = send(connection, path, body)
            sent = time.perf_counter()
            try:
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                killed, back = self.killed
                in_kill = sent < killed < time.perf_counter() or killed < sent < back
                lost = complete and not in_kill and not isinstance(error, TimeoutError) and sent < self.signalled
                with self.lock:
                    self.statuses[kind]["SIGKILL" if in_kill else type(error).__name__] += 1
                    self.counts.update(lost_in_sigkill=in_kill, lost=lost)
                return 0, None
        with self.lock:
            self.statuses[kind][str(answer.status)] += 1
            self.counts.update(answered_in_flight=sent < self.signalled < time.perf_counter())
            if answer.status == 200:
                self.times[kind].append(time.perf_counter() - start)
        self.end.wait(int(answer.headers.get("Retry-After", 0)))
        return answer.status, json.loads(content) if answer.status == 200 else None

    def ask(self, kind: str, count: int, rng: random.Random, send: Send | None = None) -> None:
        """Asks for the vectors of some texts and checks them."""
        places = [rng.randrange(len(self.texts)) for _ in range(count)]
        body = json.dumps({"model": "model", "input": [self.texts[i] for i in places]}).encode()
        status, answer = self.answered(kind, "/v1/embeddings", body, send or _post)
        if status == 200:
            rows = np.array([row["embedding"] for row in answer["data"]])
            cosines = (normalize(rows) * self.right[places]).sum(axis=1) if len(rows) == count else np.zeros(count)
            with self.lock:
                self.counts.update(vectors_checked=count, wrong_vectors=int(np.sum(cosines < 0.9999)))

    def good(self, rng: random.Random) -> None:
        """One text, or some."""
        count = rng.choice([1, 1, 1, 1, 2, 8, 40])
        self.ask("good" if count == 1 else "good, several texts", count, rng)

    def many(self, rng: random.Random) -> None:
        """As many texts as a request may have; then a pause."""
        self.ask("many", 2048, rng)
        self.end.wait(10)

    def search(self, rng: random.Random) -> None:
        """A search for the text of a document."""
        text = rng.choice(self.texts)
        status, answer = self.answered("search", "/search", json.dumps({"text": text, "k": 1}).encode(), _post)
        if status == 200:
            with self.lock:
                self.counts.update(wrong_hits=answer["hits"][0]["text"] != text.strip())

    def change(self, rng: random.Random) -> None:
        """Adds a document, sometimes twice as if the answer got lost; removes it again, or not."""
        name = f"new {next(self.numbers)}"
        body = json.dumps({"ids": [name], "texts": [f"A document named {name}."]}).encode()
        for _ in range(rng.choice([1, 1, 2])):
            status, _ = self.answered("change", "/add", body, _post)
            if status == 200:
                self.added.add(name)
        if status == 200 and rng.random() < 0.8:
            self.added.discard(name)
            self.answered("change", "/remove", json.dumps({"ids": [name]}).encode(), _post)
        self.end.wait(rng.random())

    def slow(self, rng: random.Random) -> None:
        """Sends its request in pieces, in time or too late."""
        pause = rng.choice([0.02, 0.1, 0.1, 0.1, _TIMEOUT / 10])

        def send(connection: http.client.HTTPConnection, path: str, body: bytes) -> bool:
            connection.putrequest("POST", path)
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            with contextlib.suppress(*_GONE):  # refused before its end: read why
                for piece in np.array_split(np.frombuffer(body, np.uint8), 20):
                    connection.send(piece.tobytes())
                    time.sleep(pause)
                return True
            return False

        self.ask("slow", 8, rng, send)

    def broken(self, rng: random.Random) -> None:
        """After a pause goes away in the middle of the request or before the answer, or sends what is no request."""
        body = json.dumps({"model": "model", "input": rng.choices(self.texts, k=20)})
        head = "POST /v1/embeddings HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: "
        request = f"{head}{len(body)}\r\n\r\n{body}".encode()
        garbage = rng.choice([rng.randbytes(2000), b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/embeddings HTTP/1.1\r\n"])
        with socket.create_connection(("127.0.0.1", self.port), timeout=2 * _TIMEOUT) as connection:
            connection.sendall(rng.choice([request, request[: rng.randrange(len(request))], garbage]))
            time.sleep(rng.choice([0, 0.05, 1]))
        self.statuses["broken"]["went away"] += 1


def _post(connection: http.client.HTTPConnection, path: str, body: bytes) -> bool:
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    return True


def resident(process: int) -> float:
    """MB of memory that a process has in RAM."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def draw_memory(run: Run, path: Path) -> Path:
    """The server's memory over time, beside the requests that were answered; SIGKILL starts it again."""
    seconds, megabytes, requests = zip(*run.header.memory, strict=True)
    with new_figure(path, 6.4, 3.0) as drawing:
        axis = drawing.subplots()
        (memory,) = axis.plot(seconds, megabytes, lw=1.4, color=COLORS[0], label="resident memory, MB")
        axis.set(xlabel="seconds", ylabel="MB", ylim=(0, 1.15 * max(megabytes)))
        right = axis.twinx()
        (answered,) = right.plot(seconds, requests, lw=1.4, ls="--", color=COLORS[1], label="requests answered")
        right.set(ylabel="requests", ylim=(0, 1.15 * max(requests)))
        right.grid(False)
        drawing.legend(handles=[memory, answered], loc="outside lower center", ncols=2)
    return path


def measure(config: Faults) -> Iterator[harness.Row]:
    """The answers of each kind of client by their status, and their times; counts are in the header."""
    encoder = Encoder.from_pretrained(config.model)
    texts = list(dict.fromkeys(text for group in texts_of(encoder).values() for text in group))
    vectors = encoder.encode(texts)
    ids = [f"text {i}" for i in range(len(texts))]
    first, second = (build_index(vectors, documents=texts, ids=ids) for _ in range(2))
    memory = list[list[float]]()
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "docs.db"
        first.save(file)
        command = [*our_command(config.model), "--timeout", str(_TIMEOUT), "--queue", str(_QUEUE)]
        command += ["--index", str(file), "--writable"]
        server = stack.enter_context(running(command))
        clients = Clients(server.port, texts, normalize(vectors))
        jobs = [(kind, 100 * k + i) for k, (kind, count) in enumerate(_KINDS.items()) for i in range(count)]
        threads = [threading.Thread(target=clients.run, args=job, daemon=True) for job in jobs]
        for thread in threads:
            thread.start()

        def watch(share: float) -> None:
            """Waits for a share of the time, and notes seconds, MB and requests."""
            while (elapsed := time.perf_counter() - begun) < share * config.seconds:
                requests = sum(sum(counts.values()) for counts in list(clients.statuses.values()))
                memory.append([round(elapsed, 1), round(resident(server.process.pid), 1), requests])
                time.sleep(min(config.seconds / 300, max(share * config.seconds - elapsed, 0)))

        watch(0.3)
        second.save(file)
        watch(0.35)
        clients.added.clear()  # what was added before, and answered late, went with the index that was replaced
        watch(0.6)
        clients.killed = time.perf_counter(), float("inf")
        server.signal(signal.SIGKILL)
        server = stack.enter_context(running(command))
        clients.port = server.port
        clients.killed = clients.killed[0], time.perf_counter()
        watch(1.0)
        clients.signalled = time.perf_counter()
        server.signal(signal.SIGTERM)
        code = server.process.wait(10 * _TIMEOUT)
        ended = time.perf_counter() - clients.signalled
        clients.end.set()
        for thread in threads:
            thread.join()
        clients.counts.update(lost_additions=len(clients.added - set(load_index(file).ids)))
    restart = clients.killed[1] - clients.killed[0]
    seconds = {"seconds_to_answers_after_sigkill": restart, "seconds_to_end": ended}
    yield harness.Facts(**clients.counts, **seconds, exit_code=code, memory=memory)
    for kind, statuses in clients.statuses.items():
        times = clients.times.get(kind, [float("nan")])
        p50, p99 = np.quantile(times, [0.5, 0.99]).tolist()
        row = {"clients": kind, "number": _KINDS.get(kind), "p50_seconds": p50, "p99_seconds": p99}
        yield row | {"answers": dict(sorted(statuses.items()))}
    faults = ("wrong_vectors", "wrong_hits", "lost", "lost_additions")
    if code or any(clients.counts[name] for name in faults):
        raise SystemExit(f"a wrong answer, a lost request or change, or exit code {code}: {dict(clients.counts)}")


if __name__ == "__main__":
    harness.run(measure, Faults)
