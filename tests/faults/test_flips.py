"""A flipped bit in parts or a code gives an error, or changes nothing; tests/fuzz flips bits of all other files."""

import os
import random
import shutil
import warnings

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.codes import SpectrumCode, load_code
from jaxwhiten.errors import JaxwhitenError
from jaxwhiten.runners import Parts, Source, embed_files
from tests.sentences import generated

TEXTS = generated(60)
FLIPS = int(os.environ.get("JAXWHITEN_FUZZ_EXAMPLES", 12))


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


def parts(encoder, folder):
    pytest.importorskip("pyarrow", reason="the extra data")
    (folder / "a.txt").write_text("\n".join(TEXTS))
    embed_files([Source(str(folder / "a.txt"))], folder / "kept", encoder, part_rows=20, show_progress=False)
    return lambda: np.concatenate([vectors for _, vectors in Parts(folder / "kept").blocks()])


def code(encoder, folder):
    vectors = encoder.encode(TEXTS)
    (folder / "kept").mkdir()
    SpectrumCode(bytes=4).fit(vectors).save(folder / "kept" / "code.safetensors")
    return lambda: np.array(load_code(folder / "kept" / "code.safetensors").encode(vectors))


@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
@pytest.mark.parametrize("kind", [parts, code])
def test_a_flipped_bit_never_changes_a_result_in_silence(encoder, tmp_path, kind):
    read, rng = kind(encoder, tmp_path), random.Random(0)
    shutil.copytree(tmp_path / "kept", tmp_path / "whole")
    expected, noticed = read(), 0
    for _ in range(FLIPS):
        shutil.rmtree(tmp_path / "kept")
        shutil.copytree(tmp_path / "whole", tmp_path / "kept")
        files = [path for path in (tmp_path / "kept").rglob("*") if path.is_file() and path.stat().st_size]
        path = rng.choices(sorted(files), [file.stat().st_size for file in sorted(files)])[0]
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                np.testing.assert_allclose(read(), expected, atol=1e-6)
        except JaxwhitenError:
            noticed += 1
    assert noticed
