"""The parts of a model folder belong together: every door that opens it notices one that is missing, or another one."""

import fnmatch
import itertools
import json
import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder, io, load_index
from jaxwhiten.commands import cli
from jaxwhiten.errors import ModelError
from jaxwhiten.head import CODE_FILE, WHITENING_FILE
from jaxwhiten.models import folders as model_folders
from jaxwhiten.training.fine_tune import load_bare
from tests.sentences import TEXTS, generated

DENSE = ("2_Dense/config.json", "2_Dense/model.safetensors")
PARTS = ("modules.json", "1_Pooling/config.json", *DENSE, WHITENING_FILE, CODE_FILE)


@pytest.fixture(scope="module")
def folders(tiny_model, tmp_path_factory):
    """Folders of one encoder, with a whitening and a code of two fits, and with neither."""
    at = tmp_path_factory.mktemp("parts")
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    for seed, name in enumerate(("whole", "other")):
        encoder.shrink(generated(700, seed), bytes=8).save(at / name)
    encoder.save(at / "plain")
    Encoder.from_pretrained(at / "whole").index(TEXTS).save(at / "index")
    return at


DOORS = {
    "Encoder": lambda folder, _: Encoder.from_pretrained(folder),
    "Encoder, a pooling": lambda folder, _: Encoder.from_pretrained(folder, pooling="mean"),
    "train": lambda folder, _: load_bare(folder),
    "index": lambda folder, folders: load_index(folders / "index", model=str(folder)).search(TEXTS[0], k=1),
    "verify": ["verify", "{0}"],
    "inspect": ["inspect", "{0}"],
    "export": ["export", "--model", "{0}", "-o", "{0}-out"],
}


def missing(part, folder, folders):
    (folder / part).unlink()


def of_another_fit(part, folder, folders):
    if (folders / "other" / part).read_bytes() == (folder / part).read_bytes():
        pytest.skip("the same in every fit")
    shutil.copy(folders / "other" / part, folder / part)


def one_byte_changed(part, folder, folders):
    raw = bytearray((folder / part).read_bytes())
    raw[len(raw) // 2] ^= 1
    (folder / part).write_bytes(raw)


@pytest.fixture
def folder(folders, tmp_path):
    return shutil.copytree(folders / "whole", tmp_path / "model")


# Every part and fault at one door, and every other door with two parts.
FAULTS = [*itertools.product(PARTS, (missing, of_another_fit, one_byte_changed), ["Encoder"])]
FAULTS += itertools.product(("modules.json", CODE_FILE), [one_byte_changed], [*DOORS][1:])


@pytest.mark.parametrize(("part", "fault", "door"), FAULTS)
def test_every_door_notices_every_part(folders, folder, capsys, part, fault, door):
    fault(part, folder, folders)
    if callable(DOORS[door]):
        with pytest.raises(ModelError, match="parts") as raised:
            DOORS[door](folder, folders)
        told = str(raised.value)
    else:
        assert cli.main([word.format(folder) for word in DOORS[door]]) in (1, 2)
        told = "".join(capsys.readouterr())
    assert part in told


@pytest.mark.parametrize("name", [WHITENING_FILE, CODE_FILE])
def test_a_part_that_was_added(folders, tmp_path, name):
    folder = shutil.copytree(folders / "plain", tmp_path / "model")
    shutil.copy(folders / "whole" / name, folder / name)
    with pytest.raises(ModelError, match=name):
        Encoder.from_pretrained(folder)
    (folder / io.MANIFEST).unlink()
    with pytest.raises(ModelError, match=name):
        Encoder.from_pretrained(folder)


def test_what_sentence_transformers_saves_is_its_own(folders, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")
    library.SentenceTransformer(str(folders / "whole"), device="cpu").save(str(tmp_path / "theirs"))
    expected = Encoder.from_pretrained(folders / "whole").view.uncoded(TEXTS)
    np.testing.assert_allclose(Encoder.from_pretrained(tmp_path / "theirs").encode(TEXTS), expected, atol=1e-5)


def test_every_part_is_fetched_from_the_hub(folder):
    patterns = model_folders._HUB_FILES
    for part in json.loads((folder / io.MANIFEST).read_text())["parts"]:
        assert any(fnmatch.fnmatch(part, pattern) for pattern in patterns), part


@pytest.mark.parametrize("content", ['{"parts": 3}', '{"parts": {"../x": ""}}', '{"parts": {"1_Pooling": ""}}', "["])
def test_a_damaged_record(folder, content):
    (folder / io.MANIFEST).write_text(content)
    with pytest.raises(ModelError):
        Encoder.from_pretrained(folder)
