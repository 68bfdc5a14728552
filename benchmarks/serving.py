"""Requests over HTTP: 1, 8 and 32 clients that send single queries or documents, beside other servers.

    python -m benchmarks.serving [--seconds 10] [--clients 1,8,32] [--model sentence-transformers/all-MiniLM-L6-v2]

Each server runs alone in a process of its own; its vectors must agree with ours (cosine 0.999). Peers are a plain
FastAPI program and LitServe around sentence-transformers, if installed, and `infinity_emb`, if it is on the path. The
first rows are `Encoder.encode` without a server.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib.util
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.harness import save
from jaxwhiten import Encoder, normalize
from jaxwhiten.datasets import load_sts
from jaxwhiten.models import resolve_folder

_ENCODE = """
import sys
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
def answer(texts):
    texts = [texts] if isinstance(texts, str) else texts
    rows = model.encode(texts, show_progress_bar=False, normalize_embeddings=True).tolist()
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
    return answer(asked["input"])
uvicorn.run(app, port=int(sys.argv[2]), access_log=False, log_level="error")
"""
)
_LITSERVE = """
import sys
import litserve
class Api(litserve.LitAPI):
    def setup(self, device):
        names = {"__name__": "peer"}
        exec(ENCODE, names)
        self.answer = names["answer"]
    def decode_request(self, request):
        return request["input"]
    def predict(self, x):
        return self.answer(x)
    def encode_response(self, output):
        return output
if __name__ == "__main__":
    server = litserve.LitServer(Api(api_path="/v1/embeddings"), accelerator="cpu")
    server.run(port=int(sys.argv[2]), generate_client_file=False, log_level="error")
""".replace("ENCODE", repr(_ENCODE))


def servers(model: str, folder: str) -> dict[str, list[str]]:
    """The command line of each server, with PORT for its port."""
    ours = [sys.executable, "-m", "jaxwhiten.commands.cli", "serve", model, "--name", "model", "--port", "PORT"]
    found = {"jaxwhiten": ours}
    for name, package, program in (("FastAPI", "fastapi", _FASTAPI), ("LitServe", "litserve", _LITSERVE)):
        if all(map(importlib.util.find_spec, (package, "sentence_transformers"))):
            found[f"{name}, sentence-transformers"] = [sys.executable, "-c", program, folder, "PORT"]
    if program := shutil.which("infinity_emb"):
        options = ["--served-model-name", "model", "--url-prefix", "/v1", "--port", "PORT"]
        found["infinity"] = [program, "v2", "--model-id", folder, *options]
    return found


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[int]:
    """Starts a server; its port, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [str(port) if word == "PORT" else word for word in command]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                if ask(http.client.HTTPConnection("127.0.0.1", port, timeout=60), "warm up") is not None:
                    break
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} ended with {process.returncode} before it answered")
            time.sleep(0.2)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()


def ask(connection: http.client.HTTPConnection, text: str) -> np.ndarray | None:
    """The vector of a text; None if the answer is an error."""
    body = json.dumps({"model": "model", "input": text})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    return np.array(json.loads(content)["data"][0]["embedding"]) if answer.status == 200 else None


def load(port: int, clients: int, texts: list[str], right: np.ndarray, seconds: float) -> dict[str, Any]:
    """What clients that ask one text after another see in some seconds; a wrong vector is an error."""
    taken: list[float] = []
    errors: list[int] = []
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        place = number * 37
        while (start := time.perf_counter()) < end:
            place = (place + 1) % len(texts)
            found = ask(connection, texts[place])
            taken.append(time.perf_counter() - start)
            if found is None or normalize(found[None])[0] @ right[place] < 0.999:
                errors.append(place)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    p50, p99 = (1000 * np.quantile(taken, [0.5, 0.99])).tolist()
    return {"per_second": len(taken) / seconds, "p50_ms": p50, "p99_ms": p99, "errors": len(errors)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    args = parser.parse_args()
    encoder = Encoder.from_pretrained(args.model).warm_up()
    pairs = load_sts("sts_sample").splits["test"]
    sentences = [*pairs.sentence1, *pairs.sentence2]
    queries = [text for text in sentences if 8 <= len(encoder.tokenizer([text]).flat) <= 20]
    documents = [" ".join(sentences[(i + j) % len(sentences)] for j in range(40)) for i in range(0, 400, 10)]
    rows: dict[str, Any] = {}
    for kind, texts in {"queries": queries, "documents": documents}.items():
        alone = []
        for text in texts[:100]:
            start = time.perf_counter()
            encoder.encode(text)
            alone.append(time.perf_counter() - start)
        rows[f"{kind}, Encoder.encode"] = {"p50_ms": 1000 * float(np.median(alone))}
    right = {"queries": normalize(encoder.encode(queries)), "documents": normalize(encoder.encode(documents))}
    for name, command in servers(args.model, str(resolve_folder(args.model))).items():
        with running(command) as port:
            for clients in map(int, args.clients.split(",")):
                for kind, texts in {"queries": queries, "documents": documents}.items():
                    found = load(port, clients, texts, right[kind], args.seconds)
                    rows[f"{kind}, {clients} clients, {name}"] = found
                    print(f"{kind}, {clients} clients, {name}: {found}", flush=True)
    save("serving", {"seconds": args.seconds, "rows": rows})


if __name__ == "__main__":
    main()
