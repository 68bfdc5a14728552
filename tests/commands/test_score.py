"""`jaxwhiten score`: means, a line per pair, JSON, and mistakes in one line."""

import json

import numpy as np

from jaxwhiten import Encoder
from jaxwhiten.encoding.bertscore import bert_score
from tests.commands.conftest import TEXTS


def test_score_prints_what_the_library_finds(run, tiny_model, tmp_path):
    ours, theirs = tmp_path / "ours.txt", tmp_path / "theirs.txt"
    ours.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    theirs.write_text("\n".join(reversed(TEXTS)) + "\n", encoding="utf-8")
    (tmp_path / "base.tsv").write_text("LAYER,P,R,F\n2,0.1,0.2,0.3\n")
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=64)
    expected = np.stack(bert_score(encoder, TEXTS, TEXTS[::-1], layer=2, idf=True, baseline=[0.1, 0.2, 0.3]), axis=1)

    words = ["score", ours, theirs, "--model", tiny_model, "--layer", 2, "--idf", "--baseline", tmp_path / "base.tsv"]
    lines = run(*words, "--each").out.splitlines()
    np.testing.assert_allclose([[float(cell) for cell in line.split("\t")] for line in lines], expected, atol=1e-6)
    p, r, f1 = expected.mean(axis=0)
    assert run(*words).out == f"P {p:.6f}, R {r:.6f}, F1 {f1:.6f}  ({len(TEXTS)} pairs, layer 2)\n"
    found = json.loads(run(*words[:-1], "0.1,0.2,0.3", "--json", "--each").out)
    assert abs(found["f1"] - f1) < 1e-6
    np.testing.assert_allclose(found["each"]["recall"], expected[:, 1], atol=1e-6)

    done = run(*words[:5], "--layer", 9)
    assert "--layer is 9" in done.err
    theirs.write_text("one\n")
    done = run(*words)
    assert done.code == 2
    assert f"error: {len(TEXTS)} candidates for 1 references" in done.err
