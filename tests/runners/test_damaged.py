"""Damaged headers of a folder of shards: each is an error that names the file, in Python and in every command."""

import contextlib
import json
import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.errors import FormatError
from jaxwhiten.runners import Parts, Source, embed_files
from tests.sentences import generated

pq = pytest.importorskip("pyarrow.parquet", reason="the extra data")
pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
TEXTS, GONE = generated(30), object()


@pytest.fixture(scope="module")
def whole(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    sources = [Source(str(folder / "texts.txt"))]
    embed_files(sources, folder / "parts", encoder, part_rows=10, show_progress=False)
    return folder


def changed(**values):
    """The object of a JSON file with other values; GONE removes a key."""
    return lambda path: path.write_text(json.dumps(_changed(json.loads(path.read_text()), values)))


def _changed(told, values):
    return {name: value for name, value in (told | values).items() if value is not GONE}


def without_metadata(path):
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)


DAMAGE = {
    "plan: empty": ("plan.json", lambda path: path.write_bytes(b"")),
    "plan: cut": ("plan.json", lambda path: path.write_bytes(path.read_bytes()[:-9])),
    "plan: no space": ("plan.json", changed(space=GONE)),
    "plan: inputs a number": ("plan.json", changed(inputs=3)),
    "plan: a space that is no object": ("plan.json", changed(space=["mean"])),
    "manifest: cut": ("manifest.json", lambda path: path.write_bytes(path.read_bytes()[:-9])),
    "manifest: no parts": ("manifest.json", changed(parts=GONE)),
    "record: no checksum": ("part-000000.json", changed(sha256=GONE)),
    "record: a part that is no number": ("part-000000.json", changed(part="../0")),
    "record: a position of one number": ("part-000000.json", changed(end=[3])),
    "shard: no metadata": ("part-000000.parquet", without_metadata),
}


@pytest.fixture
def damaged(whole, tmp_path, request):
    name, damage = DAMAGE[request.param]
    shutil.copytree(whole / "parts", tmp_path / "parts")
    damage(tmp_path / "parts" / name)
    return tmp_path / "parts"


@pytest.mark.slow
@pytest.mark.parametrize("damaged", DAMAGE, indirect=True)
def test_a_damaged_header_is_an_error_and_no_traceback(whole, damaged, tiny_model, tmp_path, capsys):
    errors = 0
    for use in (lambda: Parts(damaged).all(), lambda: Parts(damaged).moments(), lambda: Parts(damaged).finish()):
        with contextlib.suppress(FormatError):
            use()
            continue
        errors += 1
    assert errors
    again = f"embed {whole}/texts.txt -o {damaged} --model {tiny_model} --pooling mean --max-length 32 --part-rows 10"
    for words in (
        f"index {damaged} -o {tmp_path}/idx",
        f"fit {damaged} -o {tmp_path}/w.safetensors",
        f"{again} --moments {tmp_path}/m.safetensors",
    ):
        code = cli.main(words.split())
        said = capsys.readouterr().err
        assert (code, said.count("error: ")) in ((0, 0), (2, 1)), said


def test_what_is_intact_is_read(whole):
    ids, vectors = Parts(whole / "parts").all()
    assert (len(ids), np.isfinite(vectors).all()) == (30, True)
