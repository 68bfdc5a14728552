"""The ordinary mistakes: each is told in one line that says what to do, with the exit code of its kind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.head import Normalize
from tests.commands.conftest import generated
from tests.conftest import ROOT
from tests.test_interrupts import assert_interrupted, start_and_wait
from tests.tiny import write_model


@pytest.fixture(scope="module")
def places(tiny_model, tmp_path_factory):
    """Files that things are wrong with, and models, by their names in the table."""
    folder = tmp_path_factory.mktemp("places")
    texts = generated(400)
    files = {
        "texts.txt": "\n".join(texts),
        "empty.txt": "",
        "header.csv": "id,title,body\n1,a,b\n",
        "rows.jsonl": '{"text": "one"}\n{"txt": "two"}\n',
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "latin.txt").write_bytes("one\ncaf\xe9\n".encode("latin-1"))
    (folder / "file").touch()
    Encoder.from_pretrained(tiny_model, pooling="mean").then(Normalize()).save(folder / "auto")
    write_model(folder / "other", seed=5)
    found = {path.stem: path for path in folder.iterdir()}
    model = ["--model", str(tiny_model), "--pooling", "mean"]
    for words in (
        ["fit", found["texts"], *model, "-k", 8, "-o", folder / "mean.safetensors"],
        ["index", found["texts"], *model, "-o", folder / "idx", "--no-cache"],
    ):
        assert cli.main(list(map(str, words))) == 0
    return {**found, "tiny": tiny_model, "mean": folder / "mean.safetensors", "idx": folder / "idx", "absent": "absent"}


FIT, INDEX = "fit {texts} --model {tiny}", "index {texts} --model {tiny} --pooling mean -o {out}"
MISTAKES = {
    "a wrong path": ("encode nowhere.txt -o {out}.npy", 2, "nowhere.txt: no such file"),
    "a wrong column": ("encode {header} --column titel -o {out}.npy", 2, "no column 'titel'; the columns are id"),
    "a missing key": ("index {rows} --model {tiny} -o {out}", 2, "rows.jsonl, line 2: no key 'text'"),
    "an empty file": ("fit {empty} -o {out}", 2, "empty.txt: no sentences in it"),
    "not UTF-8": ("fit {latin} --model {tiny} -o {out}", 2, "line 2: not UTF-8 (byte 0xe9 at position 3): convert"),
    "another model": ("search {idx} word --model {other}", 2, "build the index again"),
    "another pooling": (
        "encode {texts} --model {tiny} --pooling cls --whitening {mean} -o {out}.npy",
        2,
        "Encode as it was fitted, with --pooling mean, or fit another one",
    ),
    "fitted with mean, used with auto": (
        "encode {texts} --model {auto} --whitening {mean} -o {out}.npy",
        2,
        "with --model {tiny} and --pooling mean",
    ),
    "k too large": (f"{FIT} --pooling mean -k 99 -o {{out}}", 2, "-k must be None or an integer from 1 to the 32"),
    "a CSV file with a header": ("index {header} -o {out}", 2, "say with --column which column holds the sentences"),
    "a file for a folder": (f"{FIT} --pooling mean -o {{file}}/out", 1, "choose another place"),
    "a mistyped command": ("idnex {texts}", 2, "Unknown command 'idnex'. Did you mean 'index'"),
    "a mistyped flag": (f"{INDEX} --poling mean", 2, "Unknown option '--poling'. Did you mean '--pooling'"),
}


@pytest.mark.parametrize(("words", "code", "message"), MISTAKES.values(), ids=MISTAKES)
def test_one_line_that_says_what_to_do(run, places, tmp_path, words, code, message):
    names = {**places, "out": tmp_path / "out"}
    done = run(*(word.format(**names) for word in words.split()))
    assert done.code == code, done.err
    assert message.format(**names) in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert not list(tmp_path.glob("*out*"))


@pytest.fixture
def unprivileged():
    """Not root, whom no permission is denied."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


@pytest.fixture
def forbidden(tmp_path):
    place = tmp_path / "texts.txt"
    place.write_text("one\ntwo\n")
    place.chmod(0)
    return place


def test_no_permission(run, tmp_path, forbidden, unprivileged):
    done = run("fit", forbidden, "-o", tmp_path / "out")
    assert done.code == 2
    assert done.err == f"error: {forbidden}: cannot be read (Permission denied): give a file that you may read.\n"


def test_ctrl_c_while_it_starts(tmp_path):
    process = start_and_wait("cli", "jaxwhiten.commands.texts", tmp_path / "out")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert_interrupted(process)


def test_a_mistyped_key():
    command = [sys.executable, "-m", "eval.sts", "--config.poolling=mean"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("error: Unknown config key 'poolling'. Did you mean 'poolings'")
    assert done.stderr.count("\n") == 1
