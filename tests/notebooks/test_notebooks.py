"""The notebooks: they run on small input, and what is committed is a clean run that says nothing of a machine."""

import json
import os
import re

import pytest

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(path, kind="code"):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_on_small_input(path, minilm, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    if path.stem == "train_and_code_tpu":
        pytest.importorskip("orbax.checkpoint")
    monkeypatch.setenv("JAXWHITEN_SMALL", "1")
    monkeypatch.setenv("JAXWHITEN_NOTEBOOK_DATA", "embedded")  # nothing is downloaded
    monkeypatch.setenv("XLA_FLAGS", "")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    )
    client.execute(env=dict(os.environ))  # an error in a cell is raised here
    printed = "".join(
        output["text"] for cell in notebook.cells for output in cell.get("outputs", ()) if "text" in output
    )
    assert "Spearman" in printed or "MRR@10" in printed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_is_one_clean_run_that_opens_in_colab(path):
    code = cells(path)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert "stderr" not in {output.get("name") for output in outputs}
    told = re.sub(r'"image/png": "[^"]*"', "", json.dumps(outputs))
    assert not re.search(r"/(root|work|tmp|home|content|usr)/", told)
    assert path.stat().st_size < 400_000
    badge = f"colab.research.google.com/github/OWNER/jaxwhiten/blob/main/notebooks/{path.name}"
    assert badge in "".join(cells(path, "markdown")[0]["source"])
    assert "github.com/OWNER/jaxwhiten" in "".join(code[0]["source"])  # as in pyproject.toml: tests/test_documents.py
