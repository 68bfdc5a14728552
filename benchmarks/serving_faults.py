"""A server of vectors and of an index under 33 clients, slow, broken and oversized ones among them.

    python -m benchmarks.serving_faults [--seconds 600] [--model FOLDER]

At 30 % of the time another index takes the place of the index, at 40 to 50 % one of another encoder, at 60 % SIGKILL
ends the server, which is started again, and at the end SIGTERM while the clients ask. Every answer with vectors is
compared with `Encoder.encode`, and every search with the document whose text it is. A request counts as lost if all of
it was sent (before a signal, if there was one) and no answer came; an addition, if it was answered and is not in the
index at the end. Memory is the server's resident memory.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import save
from benchmarks.serving import Server, connect, our_command, running, texts_of
from eval.plotting import COLOURS, new_figure
from eval.runs import Run
from jaxwhiten import Encoder, normalize
from jaxwhiten.models import init_model, resolve_folder
from jaxwhiten.search import build_index, load_index

_TIMEOUT = 60  # seconds for a request to arrive, by --timeout
_PATIENCE = 600  # seconds until a client gives up, which is no fault of the server
_QUEUE = 2600  # texts that may wait: beside a caller of 2,048, some callers get 429
_KINDS = {"good": 12, "search": 4, "change": 2, "many": 1, "slow": 4, "broken": 4, "oversized": 4, "headers": 2}
_MEGA = 1 << 20
_HEAD = "POST /v1/embeddings HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


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
        self.wrong = 0
        self.unexpected = 0
        self.lost = 0
        self.in_flight = 0
        self.checked = 0
        self.least = 1.0
        self.wrong_hits = 0
        self.lost_in_kill = 0
        self.numbers = itertools.count()
        self.added = set[str]()
        self.lock = threading.Lock()
        text = texts[0]
        oversized: list[tuple[Any, tuple[int, ...]]] = [
            ("a" * (9 * _MEGA), (413,)),
            ([text] * 3000, (413,)),
            ([text * 200] * 40, (200, 429)),
            ((text + " ") * (7 * _MEGA // len(text)), (200, 429)),
            (" " * (7 * _MEGA), (413, 429)),
            ([[1, 2, 3]], (400,)),
        ]
        self.too_much = [
            (json.dumps({"model": "model", "input": inputs}).encode(), status) for inputs, status in oversized
        ]
        self.too_much += [(("{" + ",".join(f'"{i}":0' for i in range(700_000)) + "}").encode(), (413,))]
        self.too_much += [(b"[" * 100_000, (400, 413))]

    def run(self, kind: str, number: int) -> None:
        """One client, until the server is gone."""
        rng = random.Random(number)
        request = getattr(self, kind)
        while not self.end.is_set():
            try:
                request(rng)
            except (OSError, http.client.HTTPException):
                self.end.wait(0.1)
            if time.perf_counter() > self.signalled:
                return

    def answered(
        self, kind: str, path: str, body: bytes, send: Callable[[http.client.HTTPConnection, str, bytes], bool]
    ) -> tuple[int, Any]:
        """Sends a request; its status, 0 if there was no answer, and the content of an answer with status 200.

        `send` says whether the whole request was sent.
        """
        start = time.perf_counter()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)) as connection:
            complete = send(connection, path, body)
            sent = time.perf_counter()
            try:
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                killed, back = self.killed
                with self.lock:
                    in_kill = sent < killed < time.perf_counter() or killed < sent < back
                    status = "SIGKILL" if in_kill else type(error).__name__
                    self.statuses[kind][status if complete else "refused half-way"] += 1
                    self.lost_in_kill += in_kill
                    gave_up = isinstance(error, TimeoutError)
                    self.lost += complete and not in_kill and not gave_up and sent < self.signalled
                return 0, None
        with self.lock:
            self.statuses[kind][str(answer.status)] += 1
            self.in_flight += sent < self.signalled < time.perf_counter()
            if answer.status == 200:
                self.times[kind].append(time.perf_counter() - start)
        self.end.wait(int(answer.headers.get("Retry-After", 0)))
        return answer.status, json.loads(content) if answer.status == 200 else None

    def ask(self, kind: str, places: list[int], send: Callable[[http.client.HTTPConnection, str, bytes], bool]) -> None:
        """Asks for vectors and checks them."""
        body = json.dumps({"model": "model", "input": [self.texts[i] for i in places]}).encode()
        status, answer = self.answered(kind, "/v1/embeddings", body, send)
        if status != 200:
            return
        rows = np.array([row["embedding"] for row in answer["data"]])
        if len(rows) == len(places):
            cosines = (normalize(rows) * self.right[places]).sum(axis=1)
        else:
            cosines = np.zeros(1)
        with self.lock:
            self.checked += len(places)
            self.wrong += int(np.sum(cosines < 0.9999))
            self.least = min(self.least, float(cosines.min()))

    def good(self, rng: random.Random) -> None:
        """One text, or some."""
        places = [rng.randrange(len(self.texts)) for _ in range(rng.choice([1, 1, 1, 1, 2, 8, 40]))]
        self.ask("good" if len(places) == 1 else "good, several texts", places, _post)

    def many(self, rng: random.Random) -> None:
        """As many texts as a request may have; then a pause."""
        self.ask("many", [rng.randrange(len(self.texts)) for _ in range(2048)], _post)
        self.end.wait(10)

    def search(self, rng: random.Random) -> None:
        """A search for the text of a document."""
        text = rng.choice(self.texts)
        status, answer = self.answered("search", "/search", json.dumps({"text": text, "k": 1}).encode(), _post)
        if status == 200 and answer["hits"][0]["text"] != text.strip():
            with self.lock:
                self.wrong_hits += 1

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
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before its end: read why
                for piece in np.array_split(np.frombuffer(body, np.uint8), 20):
                    connection.send(piece.tobytes())
                    time.sleep(pause)
                return True
            return False

        self.ask("slow", [rng.randrange(len(self.texts)) for _ in range(8)], send)

    def broken(self, rng: random.Random) -> None:
        """After a pause goes away in the middle of the request or before the answer, or sends what is no request."""
        body = json.dumps({"model": "model", "input": rng.choices(self.texts, k=20)})
        request = (_HEAD.format(len(body)) + body).encode()
        garbage = rng.choice([rng.randbytes(2000), b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/embeddings HTTP/1.1\r\n"])
        with socket.create_connection(("127.0.0.1", self.port), timeout=2 * _TIMEOUT) as connection:
            connection.sendall(rng.choice([request, request[: rng.randrange(len(request))], garbage]))
            time.sleep(rng.choice([0, 0.05, 1]))
        self.statuses["broken"]["went away"] += 1

    def oversized(self, rng: random.Random) -> None:
        """Asks for too much: a body, a list or a text that is too long, unknown fields, IDs of tokens, no JSON."""
        body, expected = rng.choice(self.too_much)
        with contextlib.closing(connect(self.port)) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                _post(connection, "/v1/embeddings", body)
            status = connection.getresponse().status
        self.end.wait(rng.random())
        with self.lock:
            self.statuses["oversized"][str(status)] += 1
            self.unexpected += status not in expected

    def headers(self, rng: random.Random) -> None:
        """Headers of 30 MB, in one line or many."""
        unit = rng.choice([b"a" * _MEGA, b"a: b\r\n" * (_MEGA // 6)])
        status = "closed"
        with socket.create_connection(("127.0.0.1", self.port), timeout=2 * _TIMEOUT) as connection:
            with contextlib.suppress(OSError):
                for piece in (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", *[unit] * 30):
                    connection.sendall(piece)
            with contextlib.suppress(OSError):
                status = connection.recv(12).decode()[-3:] or status
        self.end.wait(rng.random())
        with self.lock:
            self.statuses["headers"][status] += 1
            self.unexpected += status not in ("431", "closed")


def _post(connection: http.client.HTTPConnection, path: str, body: bytes) -> bool:
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    return True


def resident(process: int) -> float:
    """MB of memory that a process has in RAM."""
    with open(f"/proc/{process}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024  # type: ignore[index]


class Watch:
    """The server's memory over time, beside the requests that were answered."""

    def __init__(self, clients: Clients, server: Server, seconds: float):
        self.clients = clients
        self.server = server
        self.start = time.perf_counter()
        self.rows = list[list[float]]()
        self.step = seconds / 300

    def until(self, end: float) -> None:
        """Waits, and notes seconds, MB and requests."""
        while (elapsed := time.perf_counter() - self.start) < end:
            requests = sum(sum(counts.values()) for counts in list(self.clients.statuses.values()))
            self.rows.append([round(elapsed, 1), round(resident(self.server.process.pid), 1), requests])
            time.sleep(min(self.step, max(end - elapsed, 0)))
        print(f"{elapsed:.0f} s: {self.rows[-1][1]:.0f} MB, {dict(self.clients.statuses)}", flush=True)


def draw_memory(run: Run, path: Path) -> Path:
    """The server's memory over time, beside the requests that were answered; SIGKILL starts it again."""
    seconds, megabytes, requests = zip(*run.header.memory, strict=True)
    with new_figure(path, 6.4, 3.0) as drawing:
        axis = drawing.subplots()
        (memory,) = axis.plot(seconds, megabytes, lw=1.4, color=COLOURS[0], label="resident memory, MB")
        axis.set(xlabel="seconds", ylabel="MB", ylim=(0, 1.15 * max(megabytes)))
        right = axis.twinx()
        (answered,) = right.plot(seconds, requests, lw=1.4, ls="--", color=COLOURS[1], label="requests answered")
        right.set(ylabel="requests", ylim=(0, 1.15 * max(requests)))
        right.grid(False)
        drawing.legend(handles=[memory, answered], loc="outside lower center", ncols=2)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    args = parser.parse_args()
    encoder = Encoder.from_pretrained(args.model)
    texts = list(dict.fromkeys(text for group in texts_of(encoder).values() for text in group))
    vectors = encoder.encode(texts)
    ids = [f"text {i}" for i in range(len(texts))]
    first, second, third = (build_index(vectors, documents=texts, ids=ids) for _ in range(3))
    foreign = random_encoder(encoder, args.model).index(texts[:100], ids=list(map(str, range(100))))
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "docs.db"
        first.save(file)
        command = [*our_command(args.model), "--timeout", str(_TIMEOUT), "--queue", str(_QUEUE), "--index", str(file)]
        server = stack.enter_context(running([*command, "--writable"]))
        clients = Clients(server.port, texts, normalize(vectors))
        watch = Watch(clients, server, args.seconds)
        threads = started(clients)
        watch.until(0.3 * args.seconds)
        second.save(file)
        watch.until(0.4 * args.seconds)
        foreign.save(file)
        watch.until(0.5 * args.seconds)
        size_of_other = load_index(file).size
        third.save(file)
        watch.until(0.55 * args.seconds)
        clients.added.clear()  # what was added before, and answered late, went with the index that was replaced
        watch.until(0.6 * args.seconds)
        clients.killed = time.perf_counter(), float("inf")
        server.signal(signal.SIGKILL)
        watch.server = server = stack.enter_context(running([*command, "--writable"]))
        clients.port = server.port
        clients.killed = clients.killed[0], time.perf_counter()
        watch.until(args.seconds)
        clients.signalled = time.perf_counter()
        server.signal(signal.SIGTERM)
        code = server.process.wait(10 * _TIMEOUT)
        ended = time.perf_counter() - clients.signalled
        clients.end.set()
        for thread in threads:
            thread.join()
        lost_additions = len(clients.added - set(load_index(file).ids))
    facts = {
        "seconds": args.seconds,
        **counts(clients),
        "lost_additions": lost_additions,
        "added_to_the_index_of_another_encoder": size_of_other - foreign.size,
        "memory_mb": percentiles(watch.rows),
        "memory": watch.rows,
        "sigkill": {"lost": clients.lost_in_kill, "seconds_to_answers": clients.killed[1] - clients.killed[0]},
        "sigterm": {"in_flight_answered": clients.in_flight, "seconds_to_end": ended, "exit_code": code},
    }
    rows = answers(clients)
    print(json.dumps({"rows": rows, **{key: value for key, value in facts.items() if key != "memory"}}, indent=1))
    save("serving_faults", rows, kinds=_KINDS, **facts)
    wrong = clients.wrong or clients.wrong_hits or clients.unexpected or clients.lost or lost_additions
    if wrong or size_of_other != foreign.size or code:
        raise SystemExit("a wrong answer, a lost request or change, or an exit code other than 0")


def random_encoder(encoder: Encoder, model: str) -> Encoder:
    """An encoder of the same width whose weights are random, so that its vectors lie in another space."""
    weights = init_model(encoder.config, seed=1)
    return Encoder(weights, resolve_folder(model), pooling="mean", max_length=encoder.max_length, name="another")


def started(clients: Clients) -> list[threading.Thread]:
    """A running thread for each client."""
    jobs = [(kind, 100 * k + i) for k, (kind, count) in enumerate(_KINDS.items()) for i in range(count)]
    threads = [threading.Thread(target=clients.run, args=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    return threads


def counts(clients: Clients) -> dict[str, float]:
    """What the clients checked, and how often an answer was wrong or missing."""
    return {
        "vectors_checked": clients.checked,
        "min_cosine": clients.least,
        "wrong_vectors": clients.wrong,
        "wrong_hits": clients.wrong_hits,
        "unexpected_refusals": clients.unexpected,
        "lost": clients.lost,
    }


def percentiles(rows: list[list[float]]) -> dict[str, float]:
    """The memory of the server after shares of the time, in MB."""
    memory = np.array(rows)
    return {f"{share}%": memory[int(share / 100 * (len(memory) - 1)), 1] for share in (0, 10, 25, 50, 75, 100)}


def answers(clients: Clients) -> list[dict[str, Any]]:
    """The answers of each kind of client by their status, and their times."""
    rows = []
    for kind, statuses in clients.statuses.items():
        times = None
        if kind in clients.times:
            times = quantiles(clients.times[kind])
        row = {"clients": kind, "number": _KINDS.get(kind), "answers": dict(sorted(statuses.items())), "times": times}
        rows.append(row)
    return rows


def quantiles(seconds: list[float]) -> dict[str, float]:
    """The number of answers and their p50 and p99."""
    p50, p99 = np.quantile(seconds, [0.5, 0.99]).tolist()
    return {"answers": len(seconds), "p50_seconds": p50, "p99_seconds": p99}


if __name__ == "__main__":
    main()
