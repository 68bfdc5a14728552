"""Requests over HTTP: 1, 8 and 32 clients that send single queries or documents, beside other servers.

    python -m benchmarks.serving [--seconds 1.5] [--rounds 3] [--clients 1,8,32] [--model FOLDER]

A query has 8 to 20 tokens, a document close to 256. Each server is a process of its own, stopped (SIGSTOP) while others
are measured, and the rounds are interleaved. Peers are a plain FastAPI program and LitServe around
sentence-transformers, if installed, and `infinity_emb`, if it is on the path. Answers are read at once and compared
with `Encoder.encode` afterwards: one with a cosine below 0.999 is an error. `Encoder.encode` in a loop is measured in
the same rounds. Other programs on the machine lengthen all times, but hardly the server's CPU time of an answer.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import harness
from benchmarks.harness import MINILM, OURS, figure, median, ratio, rotated, table, times
from configs.settings import Config, setting
from eval.report import Table
from eval.runs import Run
from jaxwhiten import Encoder, normalize
from jaxwhiten.datasets import load_sts
from jaxwhiten.models import resolve_folder

ALONE = "Encoder.encode, no server"
_ENCODE = """
import sys
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
def vectors(texts):
    return model.encode(texts, show_progress_bar=False, normalize_embeddings=True).tolist()
def answer(rows):
    return {"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]}
"""
_FASTAPI = (
    _ENCODE
    + """
import uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.post("/v1/embeddings")
def embeddings(asked: dict):
    texts = asked["input"]
    return answer(vectors([texts] if isinstance(texts, str) else texts))
uvicorn.run(app, port=int(sys.argv[2]), access_log=False, log_level="error")
"""
)
# It collects up to 32 requests, each of one text, as its documentation shows.
_LITSERVE = """
import sys
import litserve
class Api(litserve.LitAPI):
    def setup(self, device):
        self.peer = {"__name__": "peer"}
        exec(ENCODE, self.peer)
    def decode_request(self, request):
        return request["input"]
    def batch(self, inputs):
        return list(inputs)
    def predict(self, texts):
        return self.peer["vectors"](texts)
    def unbatch(self, output):
        return output
    def encode_response(self, output):
        return self.peer["answer"]([output])
if __name__ == "__main__":
    api = Api(max_batch_size=32, batch_timeout=0.001, api_path="/v1/embeddings")
    litserve.LitServer(api, accelerator="cpu").run(port=int(sys.argv[2]), generate_client_file=False, log_level="error")
""".replace("ENCODE", repr(_ENCODE))


@dataclass(slots=True)
class Serving(Config):
    """The settings of benchmarks.serving."""

    seconds: float = setting(1.5, "of a round with each server")
    rounds: int = setting(3, "of each server")
    clients: str = setting("1,8,32", "numbers of clients")
    model: str = setting(MINILM, "a model ID or folder")


class Server(NamedTuple):
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]

    def signal(self, number: signal.Signals) -> None:
        """To the process and its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def our_command(model: str) -> list[str]:
    """The command line of our server, with PORT for its port."""
    return [sys.executable, "-m", "jaxwhiten.commands.cli", "serve", model, "--name", "model", "--port", "PORT"]


def commands(model: str, folder: str, programs: Path) -> dict[str, list[str]]:
    """The command line of each server that is here, with PORT for its port; peers become files below `programs`."""
    by_server = {OURS: our_command(model)}
    for name, package, program in (("FastAPI", "fastapi", _FASTAPI), ("LitServe", "litserve", _LITSERVE)):
        if all(map(importlib.util.find_spec, (package, "sentence_transformers"))):
            (path := programs / f"{name}.py").write_text(program)  # LitServe's workers import it
            by_server[f"{name}, sentence-transformers"] = [sys.executable, str(path), folder, "PORT"]
    if program := shutil.which("infinity_emb"):
        options = ["--served-model-name", "model", "--url-prefix", "/v1", "--device", "cpu", "--port", "PORT"]
        by_server["infinity"] = [program, "v2", "--model-id", folder, *options]
    return by_server


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[Server]:
    """Starts a server and waits until it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [str(port) if word == "PORT" else word for word in command]
    env = os.environ | {"HF_HUB_OFFLINE": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    if command[0] != sys.executable:
        env.pop("PYTHONPATH", None)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env, process_group=0)
    server = Server(port, process)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError, http.client.HTTPException):
                if vector_of(ask(connect(port), "warm up")) is not None:
                    break
            if server.process.poll() is not None:
                raise SystemExit(f"{command[0]} ended with {server.process.returncode} before it answered")
            time.sleep(0.2)
        else:
            raise SystemExit(f"{command[0]} did not answer")
        yield server
    finally:
        server.signal(signal.SIGCONT)
        server.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(20)
        server.signal(signal.SIGKILL)


def cpu_seconds(group: int) -> float:
    """The CPU time that the processes of a group have used."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()  # of proc(5), from the third on
            total += sum(map(int, fields[11:13])) if int(fields[2]) == group else 0
    return total / os.sysconf("SC_CLK_TCK")


def connect(port: int) -> http.client.HTTPConnection:
    """A connection that stays open."""
    return http.client.HTTPConnection("127.0.0.1", port, timeout=120)


def ask(connection: http.client.HTTPConnection, text: str) -> bytes:
    """The answer to a text, empty if its status is an error."""
    body = json.dumps({"model": "model", "input": text})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    return content if answer.status == 200 else b""


def vector_of(answer: bytes | np.ndarray) -> np.ndarray | None:
    """The vector of an answer, None of an error."""
    if isinstance(answer, np.ndarray):
        return answer
    if answer:
        return np.array(json.loads(answer)["data"][0]["embedding"])
    return None


def load(
    clients: Sequence[Callable[[str], Any]], texts: list[str], right: np.ndarray, seconds: float
) -> dict[str, Any]:
    """What clients that ask one text after another see in some seconds."""
    latencies: list[float] = []
    answers: list[tuple[int, Any]] = []
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        i = number * 37
        while (start := time.perf_counter()) < end:
            i = (i + 1) % len(texts)
            answers.append((i, clients[number](texts[i])))
            latencies.append(time.perf_counter() - start)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(len(clients))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = len(latencies) / (time.perf_counter() - start)
    pairs = [(right[i], vector_of(answer)) for i, answer in answers]
    cosines = [0.0 if vector is None else float(normalize(vector[None])[0] @ row) for row, vector in pairs]
    p50, p99 = (1000 * np.quantile(latencies, [0.5, 0.99])).tolist()
    times = {"per_second": rate, "p50_ms": p50, "p99_ms": p99}
    return times | {"errors": sum(c < 0.999 for c in cosines), "answers": len(latencies), "min_cosine": min(cosines)}


def asked(
    server: Server | None, encoder: Encoder, clients: int, texts: list[str], right: np.ndarray, seconds: float
) -> dict[str, Any]:
    """`load` on a server that is stopped, with the CPU time of an answer, or on the encoder of this process."""
    if server is None:
        return load([encoder.encode], texts, right, seconds)
    server.signal(signal.SIGCONT)
    cpu = cpu_seconds(server.process.pid)
    figures = load([partial(ask, connect(server.port)) for _ in range(clients)], texts, right, seconds)
    used = cpu_seconds(server.process.pid) - cpu
    server.signal(signal.SIGSTOP)
    return figures | {"cpu_ms": 1000 * used / figures["answers"]}


def summary(rounds: list[dict[str, Any]], baseline: list[dict[str, Any]]) -> dict[str, Any]:
    """The rounds of a contestant, and how many times as fast ours is, round by round."""
    seconds = {
        name: [1 / run["per_second"] for run in runs] for name, runs in {"ours": baseline, "peer": rounds}.items()
    }
    speed = ratio(seconds, "ours", "peer")
    means = [key for key in ("per_second", "p50_ms", "p99_ms", "cpu_ms") if key in rounds[0]]
    figures = {key: median([run[key] for run in rounds]) for key in means}
    figures |= {key: sum(run[key] for run in rounds) for key in ("errors", "answers")}
    return {**figures, "min_cosine": min(run["min_cosine"] for run in rounds), "speed_of_ours": speed, "rounds": rounds}


def texts_of(encoder: Encoder) -> dict[str, list[str]]:
    """Queries of 8 to 20 tokens, and documents that are as close to 256 tokens as whole sentences allow."""
    pairs = load_sts("sts_sample").splits["test"]
    sentences = [*pairs.sentence1, *pairs.sentence2]
    lengths = encoder.view.core.tokenizer(sentences).lengths
    documents = []
    for start in range(0, 400, 10):
        places = np.arange(start, start + 60) % len(sentences)
        within = 2 + np.cumsum(lengths[places] - 2) <= 256
        documents.append(" ".join(sentences[i] for i in places[within]))
    queries = [text for text, length in zip(sentences, lengths, strict=True) if 8 <= length <= 20]
    return {"queries": queries, "documents": documents}


def serving_table(run: Run) -> Table:
    """Requests over HTTP: rate and times of each server, and how many times as fast ours is."""
    columns = {
        "texts": lambda row: f"{row.texts}, {row.clients} client{'s' * (row.clients > 1)}",
        "server": "server",
        "requests/s": figure("per_second", 1),
        "p50, ms": figure("p50_ms", 1),
        "p99, ms": figure("p99_ms", 1),
        "CPU ms per request": figure("cpu_ms", 1),
        "errors": "errors",
        "jaxwhiten is faster by": lambda row: "" if row.server == OURS else times(row.speed_of_ours),
    }
    return table(run, columns)


TABLES = {"serving_table": serving_table}


def measure(config: Serving) -> Iterator[harness.Row]:
    """Rounds of every server with every kind of text and number of clients."""
    encoder = Encoder.from_pretrained(config.model)
    encoder.view.warm_up()
    texts = texts_of(encoder)
    right = {kind: normalize(encoder.encode(batch)) for kind, batch in texts.items()}
    cells = [(kind, int(clients)) for kind in texts for clients in config.clients.split(",")]
    rounds: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {cell: {} for cell in cells}
    with contextlib.ExitStack() as stack:
        servers = {}
        programs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, command in commands(config.model, str(resolve_folder(config.model)), programs).items():
            servers[name] = stack.enter_context(running(command))
            servers[name].signal(signal.SIGSTOP)
        for number in range(-1, config.rounds):  # the first is not counted
            seconds = config.seconds if number >= 0 else 0.3
            for kind, clients in cells:
                for name in rotated([*servers, *[ALONE] * (clients == 1)], max(number, 0)):
                    figures = asked(servers.get(name), encoder, clients, texts[kind], right[kind], seconds)
                    if number >= 0:
                        rounds[kind, clients].setdefault(name, []).append(figures)
    for (kind, clients), of_cell in rounds.items():
        for name, of_server in of_cell.items():
            yield {"texts": kind, "clients": clients, "server": name} | summary(of_server, of_cell[OURS])


if __name__ == "__main__":
    harness.run(measure, Serving)
