"""No command opens a connection beyond this machine, and every command runs with `HF_HUB_OFFLINE=1`."""

import contextlib
import socket

import pytest

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from tests.sentences import generated

MODEL = "--model {model} --pooling mean"
COMMANDS = {
    "encode": f"encode {{texts}} {MODEL} -o {{out}}.npy",
    "embed": f"embed {{texts}} {MODEL} -o {{out}}",
    "fit": f"fit {{texts}} {MODEL} -k 8 -o {{out}}/",
    "apply": "apply {whitening} {vectors} -o {out}.npy",
    "inspect": "inspect {whitening}",
    "train": f"train {{pairs}} {MODEL} -o {{out}} --steps 1 --objective cosent",
    "score": f"score {{pairs}} {MODEL} -k 8",
    "index": f"index {{texts}} {MODEL} --bytes 8 -o {{out}}",
    "search": "search {index} hello",
    "serve": "serve {model} --port 0",
    "distil-static": f"distil-static --corpus {{texts}} {MODEL} -o {{out}}/ -k 4",
    "export": f"export {MODEL} -o {{out}}",
    "verify": "verify {index}",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory, tiny_model):
    at, texts = tmp_path_factory.mktemp("offline"), generated(700)
    (at / "texts.txt").write_text("\n".join(texts) + "\n")
    (at / "few.txt").write_text("\n".join(texts[:20]) + "\n")
    pairs = "".join(f"{texts[2 * i]}\t{texts[2 * i + 1]}\t{i}\n" for i in range(60))
    (at / "pairs.tsv").write_text(f"sentence1\tsentence2\tscore\n{pairs}")
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    words = ["fit", at / "texts.txt", "--model", tiny_model, "--pooling", "mean", "-o", at / "w.safetensors"]
    assert cli.main([str(word) for word in words]) == 0
    assert cli.main(["encode", str(at / "few.txt"), *f"--model {tiny_model} --pooling mean -o {at}/v.npy".split()]) == 0
    encoder.index(texts, bytes=8).save(at / "idx")
    files = {"model": tiny_model, "index": at / "idx", "vectors": at / "v.npy", "whitening": at / "w.safetensors"}
    return {**files, "texts": at / "texts.txt", "pairs": at / "pairs.tsv"}


def test_every_command_is_tried():
    assert set(COMMANDS) == set(cli.COMMANDS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=[pytest.mark.slow] * (name == "train")) for name in COMMANDS]
)
def test_a_command_stays_on_this_machine(run, places, tmp_path, monkeypatch, command):
    if command == "serve":
        serving = pytest.importorskip("jaxwhiten.serving")
        monkeypatch.setattr(serving, "listening", lambda *_: contextlib.nullcontext(lambda: None))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    names = []

    def resolved(host, *_, **how):
        names.append(host)
        raise socket.gaierror(f"{host}: offline")

    def connected(_, address):
        names.append(address)
        raise OSError(f"{address}: offline")

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(socket.socket, "connect", connected)
    monkeypatch.setattr(socket.socket, "connect_ex", connected)
    done = run(*COMMANDS[command].format(**places, out=tmp_path / "out").split())
    assert done.code == 0, done.err
    assert names == []
