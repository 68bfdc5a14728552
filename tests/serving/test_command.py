"""`jaxwhiten serve` as a process: its messages, its mistakes, and SIGTERM in the middle of work."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.errors import ModelError
from jaxwhiten.text.tokenization import COUNTS
from jaxwhiten.views.stream import Run
from tests.serving.conftest import TEXTS

pytest.importorskip("fastapi")


@pytest.fixture
def started():
    """Starts a server; ends it if the test did not."""
    running = []

    def start(*words):
        command = [sys.executable, "-m", "jaxwhiten.commands.cli", "serve", *words, "--port", "0"]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running[-1], re.fullmatch(r"Serving (\S+) on (http://\S+)\n", running[-1].stdout.readline())[2]

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_sigterm_loses_no_request(started):
    process, url = started("jaxwhiten-tiny")
    encoder = Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean")
    expected = dict(zip(TEXTS[:40], encoder.encode(TEXTS[:40]), strict=True))
    accepted = []

    def ask(number):
        texts = TEXTS[number:40:8] * 8
        content = json.dumps({"model": "jaxwhiten-tiny", "input": texts})
        with httpx2.Client(base_url=url, timeout=60) as client:
            client.get("/health")
            accepted.append(number)
            answer = client.post("/v1/embeddings", content=content, headers={"Content-Type": "application/json"})
        return texts, answer

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(ask, number) for number in range(8)]
        while len(accepted) < 8:
            time.sleep(0.01)
        time.sleep(0.1)  # the requests are sent
        process.send_signal(signal.SIGTERM)
        for job in jobs:
            texts, answer = job.result()
            assert answer.status_code == 200
            found = [item["embedding"] for item in answer.json()["data"]]
            np.testing.assert_allclose(found, [expected[text] for text in texts], atol=1e-5)
    assert process.wait(30) == 0
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{url}/health")


def test_a_taken_port_is_an_error(capsys):
    from jaxwhiten import serving

    bound, url = serving.bind(port=0)
    with bound:
        bound.listen()
        assert cli.main(["serve", "jaxwhiten-tiny", "--port", url.rpartition(":")[2]]) == 1
    assert re.search(r"--port \d+: .*in use", capsys.readouterr().err)


@pytest.mark.parametrize("at", ["warm_up", "of_tokens"])
def test_an_encoder_that_does_not_run_is_an_error_at_once(tiny, tmp_path, monkeypatch, capsys, at):
    tiny.save(tmp_path / "model")

    def fail(*_, **how):
        raise ModelError("no such operator")

    monkeypatch.setattr(Run, at, fail)
    assert cli.main(["serve", str(tmp_path / "model"), "--port", "0"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: no such operator\n")


def test_connections_send_at_once():
    """Nagle's algorithm would hold a body back until the client acknowledges its headers, up to 40 ms."""
    from jaxwhiten import serving

    bound, _ = serving.bind(port=0)
    with bound:
        bound.listen()
        with socket.create_connection(bound.getsockname()), bound.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_nobody_can_connect_before_the_encoder_is_compiled(tiny, tmp_path, monkeypatch):
    """Who waited would be reset by a SIGTERM, which ends the start at once."""
    tiny.save(tmp_path / "model")
    ports = []
    bind = socket.socket.bind

    def bound(self, address):
        bind(self, address)
        ports.append(self.getsockname())

    def compile_(*_):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(ports[-1], timeout=5)
        raise ModelError("probed")

    monkeypatch.setattr(socket.socket, "bind", bound)
    monkeypatch.setattr(Run, "warm_up", compile_)
    assert cli.main(["serve", str(tmp_path / "model"), "--port", "0"]) == 2


def test_texts_that_warm_it_up_are_not_counted(tiny):
    from jaxwhiten import serving

    COUNTS.clear()
    serving.application(tiny)
    assert not COUNTS


def test_the_access_log_has_a_line_for_each_request(plain, caplog):
    with caplog.at_level("INFO", "jaxwhiten.access"):
        plain.client.post("/embed", json={"inputs": "It rains."})
        plain.client.get("/no%0Awhere?key=1")
    lines = [record.getMessage() for record in caplog.records if record.name == "jaxwhiten.access"]
    assert [re.sub(r"[\d.]+ ms", "TIME", line) for line in lines] == [
        "127.0.0.1 POST /embed 200 TIME",
        "127.0.0.1 GET /no%0Awhere 404 TIME",
    ]
    caplog.clear()
    plain.client.get("/health")
    assert not caplog.records
