"""Servers on loopback, in threads of this process, with the encoder that ships."""

import contextlib
import threading
import warnings
from types import SimpleNamespace

import httpx2
import pytest

from jaxwhiten import Encoder, load_sts

PAIRS = load_sts("sts_sample").splits["test"]
TEXTS = list(dict.fromkeys(PAIRS.sentence1))[:200]


@pytest.fixture(autouse=True, scope="package")
def installed():
    """Every test here is skipped, whatever it imports, where a server cannot be made."""
    for package in ("fastapi", "orjson", "uvicorn", "prometheus_client"):
        pytest.importorskip(package)


@contextlib.contextmanager
def served(encoder, warm=False, **how):
    """A running server: its URL, a client, and what it was made of; what it has not compiled waits for requests."""
    from jaxwhiten import serving  # or the test is skipped
    from jaxwhiten.serving.batching import Batcher
    from jaxwhiten.serving.server import Server

    with pytest.MonkeyPatch.context() as patch:
        if not warm:
            patch.setattr(Batcher, "warm_up", lambda *_: None)
        app = serving.application(encoder, **how)
    bound, url = serving.bind(port=0)
    server = Server(app)
    bound.listen()
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    with bound:
        try:
            with httpx2.Client(base_url=url, timeout=60) as client:
                assert client.get("/health").status_code == 200
                yield SimpleNamespace(url=url, client=client, post=poster(client), encoder=encoder, app=app)
        finally:  # without a connection that the server would wait for
            server.should_exit = True
            thread.join()


def poster(client):
    def post(path, **body):
        return client.post(path, json=body)

    return post


@pytest.fixture(scope="package")
def tiny():
    """The encoder that ships, with prompts."""
    prompts = {"query": "query: ", "document": "passage: "}
    return Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean", max_length=64, prompts=prompts)


@pytest.fixture(scope="package")
def plain():
    """A server of floats, without prompts."""
    encoder = Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean", max_length=64)
    with served(encoder, warm=True) as server:
        yield server


@pytest.fixture(scope="package")
def coded(tiny, tmp_path_factory):
    """A server of codes, with an index that requests may change."""
    file, model = (tmp_path_factory.mktemp("served") / name for name in ("docs.db", "small"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few texts
        tiny.shrink(TEXTS, k=48, bytes=16).save(model)
    encoder = Encoder.from_pretrained(model)
    encoder.index(TEXTS, backend="jax").save(file)
    with served(encoder, warm=True, index=file, writable=True) as server:
        server.file = file
        yield server
