"""`experiments/reproduce.sh`, end to end: a hub on loopback serves tiny encoders under the names of the paper's."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from eval.runs import Run
from tests.conftest import ONE_DEVICE, ROOT, own_cache
from tests.export import hub as hubs
from tests.programs.runs import WORDS
from tests.tiny import write_model

SCRIPT = ROOT / "experiments" / "reproduce.sh"
WIDTH = 384  # of each: it holds the dimensions that the paper keeps, and what compiles for one serves the other


def reproduced():
    """The models that the experiment names, with their dimensions."""
    names = re.search(r"\|\| set -- (.*?)(?<!\\)\n", SCRIPT.read_text(), re.DOTALL)
    return [word.split(":") for word in names[1].replace("\\\n", " ").split()]


def write_data(folder):
    """A file in Quora's columns, and NLI rows, of random words."""
    rng = np.random.default_rng(0)
    sentences = [" ".join(rng.choice(WORDS, 5)) for _ in range(400)]
    (folder / "nli").mkdir(parents=True)
    rows = [
        f"{a}\t{b}\t{label}"
        for a, b, label in zip(sentences[:200], sentences[200:], ["neutral", "entailment"] * 100, strict=True)
    ]
    (folder / "nli" / "rows.tsv").write_text("premise\thypothesis\tlabel\n" + "\n".join(rows) + "\n")
    lines = ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"]
    lines += [f"{i}\t{2 * i}\t{2 * i + 1}\t{sentences[i]}\t{sentences[i + 200]}\t{int(i % 2)}" for i in range(200)]
    (folder / "quora_duplicate_questions.tsv").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_rows_of_the_paper_are_made_from_the_hub(tmp_path):
    """Those of the first encoder, a base, and of the last, a large one."""
    settings = reproduced()[:: len(reproduced()) - 1]
    write_data(tmp_path / "data")
    binaries = tmp_path / "venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (binaries / "python").chmod(0o755)
    (tmp_path / "venv" / ".installed-cpu-data-eval").touch()  # newer than pyproject.toml: nothing is installed
    for name in ("eval", "configs", "benchmarks", "experiments", "Makefile", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    with hubs.serving() as hub:
        for name, _ in settings:
            sizes = {"hidden_size": WIDTH, "num_layers": 2, "num_heads": 2, "intermediate_size": 16}
            model = write_model(tmp_path / "models" / name, **sizes)
            hub.repos[name] = {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")} | {
            "HF_ENDPOINT": hub.url,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(tmp_path / "hub"),
            "JAXWHITEN_CACHE_DIR": own_cache(tmp_path / "cache"),
            "JAXWHITEN_DATA_DIR": str(tmp_path / "data"),
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": ONE_DEVICE,
            "VENV": "venv",
            "STS_ARGS": "--config.tasks=sts_sample --config.bootstrap=0",
            "QUORA_ARGS": "--config.bootstrap=0",
        }
        command = [tmp_path / "experiments" / SCRIPT.name, *(":".join(setting) for setting in settings)]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    for name, k in settings:
        end = name.rpartition("/")[2]
        sts, quora = (Run.load(tmp_path / "runs" / "reproduce" / f"{kind}-{end}") for kind in ("sts", "quora"))
        for run in (sts, quora):
            assert run.header.complete
            assert run.header.model == name
        assert {(row.pooling, row.whitening) for row in sts.rows} >= {
            (pooling, whitening) for pooling in ("cls", "first_last_avg") for whitening in ("none", "target", "nli")
        }
        assert {row.k for row in quora.rows if row.whitening != "none"} >= {int(k)}
