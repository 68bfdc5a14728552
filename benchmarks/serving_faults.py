"""A server under 32 clients, slow, broken and oversized ones among them, which is ended by SIGTERM while they ask.

    python -m benchmarks.serving_faults [--seconds 600] [--model FOLDER]

Every answer with vectors is compared with `Encoder.encode`. A request counts as lost if all of it was sent (before the
signal, if there was one) and no answer came. Memory is the server's resident memory.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import json
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness import save
from benchmarks.serving import connect, ours, running, texts_of
from jaxwhiten import Encoder, normalize

_TIMEOUT = 60  # seconds to an answer, by --timeout
_QUEUE = 600  # texts that may wait, so that some callers get 429
_HEAD = "POST /v1/embeddings HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


class Clients:
    """What all clients share: the texts with their vectors, and what came of the requests."""

    def __init__(self, port: int, texts: list[str], right: np.ndarray):
        self.port, self.texts, self.right = port, texts, right
        self.end, self.signalled = threading.Event(), float("inf")
        self.statuses: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.wrong, self.unexpected, self.lost, self.in_flight, self.checked, self.least = 0, 0, 0, 0, 0, 1.0
        self.lock = threading.Lock()

    def run(self, kind: str, number: int) -> None:
        """One client, until the server is gone."""
        rng, ask = random.Random(number), getattr(self, kind)
        while not self.end.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask(rng)
            if time.perf_counter() > self.signalled:
                return

    def ask(self, kind: str, places: list[int], send: Callable[[http.client.HTTPConnection, bytes], None]) -> None:
        """Sends a request, reads its answer and checks the vectors."""
        body = json.dumps({"model": "model", "input": [self.texts[i] for i in places]}).encode()
        connection = connect(self.port)
        with contextlib.closing(connection):
            send(connection, body)
            sent = time.perf_counter()
            try:
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                with self.lock:
                    self.statuses[kind][type(error).__name__] += 1
                    self.lost += sent < self.signalled
                return
        cosines = [1.0]
        if answer.status == 200:
            rows = np.array([row["embedding"] for row in json.loads(content)["data"]])
            cosines = (normalize(rows) * self.right[places]).sum(axis=1) if len(rows) == len(places) else [0.0]
        with self.lock:
            self.statuses[kind][str(answer.status)] += 1
            self.checked += len(places) if answer.status == 200 else 0
            self.wrong += int(np.sum(np.less(cosines, 0.9999)))
            self.least = min(self.least, float(min(cosines)))
            self.in_flight += sent < self.signalled < time.perf_counter()
        self.end.wait(int(answer.headers.get("Retry-After", 0)))

    def good(self, rng: random.Random) -> None:
        """One text, or some."""
        places = [rng.randrange(len(self.texts)) for _ in range(rng.choice([1, 1, 1, 1, 2, 8, 40]))]
        self.ask("good", places, _post)

    def slow(self, rng: random.Random) -> None:
        """Sends its request in pieces, in time or too late."""
        pause = rng.choice([0.02, 0.1, 0.1, 0.1, _TIMEOUT / 10])

        def send(connection: http.client.HTTPConnection, body: bytes) -> None:
            connection.putrequest("POST", "/v1/embeddings")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before its end: read why
                for piece in np.array_split(np.frombuffer(body, np.uint8), 20):
                    connection.send(piece.tobytes())
                    time.sleep(pause)

        self.ask("slow", [rng.randrange(len(self.texts)) for _ in range(8)], send)

    def broken(self, rng: random.Random) -> None:
        """After a pause goes away in the middle of the request or before the answer, or sends what is no request."""
        body = json.dumps({"model": "model", "input": rng.choices(self.texts, k=20)})
        whole = (_HEAD.format(len(body)) + body).encode()
        garbage = rng.choice([rng.randbytes(2000), b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/embeddings HTTP/1.1\r\n"])
        with socket.create_connection(("127.0.0.1", self.port), timeout=2 * _TIMEOUT) as connection:
            connection.sendall(rng.choice([whole, whole[: rng.randrange(len(whole))], garbage]))
            time.sleep(rng.choice([0, 0.05, 1]))
        self.statuses["broken"]["went away"] += 1

    def oversized(self, rng: random.Random) -> None:
        """Asks for too much: a body, a list or a text that is too long, IDs of tokens, no JSON."""
        text = self.texts[0]
        body, expected = rng.choice(
            [
                (json.dumps({"model": "model", "input": "a" * (9 << 20)}), (413,)),
                (json.dumps({"model": "model", "input": [text] * 3000}), (413,)),
                (json.dumps({"model": "model", "input": [text * 200] * 40}), (200, 429, 503)),
                (json.dumps({"model": "model", "input": [[1, 2, 3]]}), (400,)),
                ("[" * 100_000, (400,)),
            ]
        )
        with contextlib.closing(connect(self.port)) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                _post(connection, body.encode())
            status = connection.getresponse().status
        self.end.wait(rng.random())
        with self.lock:
            self.statuses["oversized"][str(status)] += 1
            self.unexpected += status not in expected


def _post(connection: http.client.HTTPConnection, body: bytes) -> None:
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})


def resident(process: int) -> float:
    """MB of memory that a process has in RAM."""
    with open(f"/proc/{process}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024  # type: ignore[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    args = parser.parse_args()
    encoder = Encoder.from_pretrained(args.model)
    texts = [text for of in texts_of(encoder).values() for text in of]
    right = normalize(encoder.encode(texts))
    kinds = {"good": 20, "slow": 4, "broken": 4, "oversized": 4}
    command = [*ours(args.model), "--timeout", str(_TIMEOUT), "--queue", str(_QUEUE)]
    with running(command) as server:
        clients = Clients(server.port, texts, right)
        memory = {"0%": resident(server.process.pid)}
        jobs = [(kind, 100 * k + i) for k, (kind, count) in enumerate(kinds.items()) for i in range(count)]
        threads = [threading.Thread(target=clients.run, args=job, daemon=True) for job in jobs]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for percent in (10, 25, 50, 75, 100):
            time.sleep(max(start + args.seconds * percent / 100 - time.perf_counter(), 0))
            memory[f"{percent}%"] = resident(server.process.pid)
            print(f"{percent}%: {memory[f'{percent}%']:.0f} MB, {dict(clients.statuses)}", flush=True)
        clients.signalled = time.perf_counter()
        server.signal(signal.SIGTERM)
        code = server.process.wait(3 * _TIMEOUT)
        ended = time.perf_counter() - clients.signalled
        clients.end.set()
        for thread in threads:
            thread.join()
    found = {
        "seconds": args.seconds,
        "clients": kinds,
        "answers": {kind: dict(sorted(statuses.items())) for kind, statuses in clients.statuses.items()},
        "vectors_checked": clients.checked,
        "min_cosine": clients.least,
        "wrong_vectors": clients.wrong,
        "unexpected_refusals": clients.unexpected,
        "lost": clients.lost,
        "memory_mb": memory,
        "sigterm": {"in_flight_answered": clients.in_flight, "seconds_to_end": ended, "exit_code": code},
    }
    print(json.dumps(found, indent=1))
    save("serving_faults", found)
    if clients.wrong or clients.unexpected or clients.lost or code:
        raise SystemExit("a wrong answer, a lost request or an exit code other than 0")


if __name__ == "__main__":
    main()
