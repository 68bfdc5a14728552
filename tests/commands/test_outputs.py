"""An output replaces an earlier output of its own kind, and nothing else: no input, no foreign or read-only file."""

import os
import shutil

import numpy as np
import pytest

from tests.commands.conftest import MODEL, TEXTS, contents, words_of

# Every command that writes, each with an output that would replace an input of its own.
REPLACING_INPUTS = [
    f"fit {{texts.txt}} {MODEL} -o {{texts.txt}}",
    "fit {texts.txt} --model {small} -o {small}",
    f"fit {{texts.txt}} {MODEL} -o {{model/model.safetensors}}",
    f"fit {{texts.txt}} {MODEL} --moments {{model/model.safetensors}}",
    f"fit {{texts.txt}} {MODEL} -o {{new}}.safetensors --moments {{new}}.safetensors",
    "fit {parts} --moments {parts/plan.json}",
    "export --format onnx --model {small} -o {small}",
    "export --format sqlite-vec --model {small} -o {new} --from {idx.db} --into {idx.db}",
    "export --model {model} --pooling mean --whitening {w.safetensors} -o {w.safetensors}",
    "distill --model {model} --pooling mean --corpus {texts.txt} -o {texts.txt}",
    "fit {m.safetensors} {m.safetensors} -o {m.safetensors}",
    "apply {w.safetensors} {x.npy} -o {x.npy}",
    "embed {texts.txt} --model {small} -o {texts.txt}",
    "train {pairs.tsv} --model {model} -o {pairs.tsv}",
    "train {pairs.tsv} --model {model} --objective distil_mse --teacher {small} -o {small}",
    "index {texts.txt} --model {small} -o {texts.txt}",
    "index {texts.txt} --like {idx.db} -o {idx.db}",
    "index {parts} -o {parts}",
]
# Outputs that exist and are of another kind or someone's own; names of inputs are free.
REPLACING_OTHERS = [
    "export --format onnx --model {model} --pooling mean -o {small}",
    f"fit {{texts.txt}} {MODEL} -o {{idx.db}}",
    f"fit {{texts.txt}} {MODEL} -o {{foreign}}",
    f"fit {{texts.txt}} {MODEL} -o {{m.safetensors}}",
    f"fit {{texts.txt}} {MODEL} --moments {{w.safetensors}}",
    f"encode {{texts.txt}} {MODEL} -o {{foreign.jsonl}}",
    "apply {w.safetensors} {x.npy} -o {foreign.parquet}",
    f"index {{texts.txt}} {MODEL} -o {{foreign}}",
    f"index {{texts.txt}} {MODEL} -o {{foreign.parquet}}",
    f"embed {{texts.txt}} {MODEL} -o {{foreign}}",
]


@pytest.mark.parametrize("line", REPLACING_INPUTS + REPLACING_OTHERS)
def test_nothing_that_is_there_is_lost(run, things, line):
    """Not with --overwrite either."""
    before = contents(things)
    done = run(*words_of(line, things), "--overwrite")
    assert (done.code, done.err.count("error: ")) == (2, 1), (done.out, done.err)
    assert contents(things) == before


def test_an_input_by_another_name_is_an_input(run, things):
    (things / "link").symlink_to(things / "small")
    before = contents(things)
    done = run(*words_of("fit {texts.txt} --model {small} -o {link} --overwrite", things))
    assert (done.code, "would replace" in done.err) == (2, True), done.err
    assert contents(things) == before


@pytest.mark.parametrize("name", ["old", "w.safetensors", "x.npy", "idx.db", "begun"])
def test_what_is_read_only_stays(run, things, name):
    if name == "old":
        shutil.copytree(things / "small", things / "old")
    if name == "begun":
        assert run(*words_of(f"embed {{texts.txt}} {MODEL} -o {{begun}}", things)).code == 0
    (things / name).chmod(0o555)
    line = {
        "old": f"fit {{texts.txt}} {MODEL} -o {{old}} -k 4 --overwrite",
        "w.safetensors": f"fit {{texts.txt}} {MODEL} -o {{w.safetensors}} -k 4 --overwrite",
        "x.npy": f"encode {{pairs.tsv}} --column sentence1 {MODEL} -o {{x.npy}} --overwrite",
        "idx.db": f"index {{pairs.tsv}} --column sentence1 {MODEL} -o {{idx.db}} --overwrite",
        "begun": f"embed {{texts.txt}} {MODEL} -o {{begun}}",
    }[name]
    before = contents(things)
    done = run(*words_of(line, things))
    (things / name).chmod(0o755)
    assert (done.code, "read-only" in done.err) == (2, True), done.err
    assert contents(things) == before
    assert not list(things.glob(".*"))


def test_a_link_keeps_its_place_and_its_file_is_written(run, things):
    (things / "link.npy").symlink_to(things / "x.npy")
    done = run(*words_of(f"encode {{pairs.tsv}} --column sentence1 {MODEL} -o {{link.npy}} --overwrite", things))
    assert done.code == 0, done.err
    assert os.readlink(things / "link.npy") == str(things / "x.npy")
    assert len(np.load(things / "x.npy")) == len(TEXTS) - 1
    (things / "loop.npy").symlink_to(things / "loop.npy")
    done = run(*words_of(f"encode {{texts.txt}} {MODEL} -o {{loop.npy}}", things))
    assert (done.code, "symbolic link in a loop" in done.err) == (2, True), done.err
