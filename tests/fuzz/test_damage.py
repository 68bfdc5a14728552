"""Files from strangers, damaged anywhere: each reader gives what it promises, or a typed error that names the file."""

import dataclasses
import functools
import io as bytes_io
import json
import struct
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxwhiten import Encoder, io
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.codes.files import open_vectors
from jaxwhiten.errors import DataError, ModelError
from jaxwhiten.head import read_head
from jaxwhiten.models import EncoderConfig, checkpoint, folders, loading
from jaxwhiten.models.folders import FAMILIES
from jaxwhiten.runners import Parts, Source, embed_files
from jaxwhiten.text.tokenization import BulkTokenizer
from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.whitening import Whitening
from tests.conftest import slow_but
from tests.fuzz.common import ODD, attempt, damaged, damaged_json, fuzz, json_text
from tests.golden.cases import FAMILIES_FILE, metadata
from tests.tiny import SENTENCES, tiny_config, write_model, write_tokenizer

CONFIGS = {name: case["config"] for name, case in metadata(FAMILIES_FILE)["cases"].items()}
KINDS = ["Transformer", "WeightedLayerPooling", "Pooling", "Dense", "Normalize"]
OF_HEAD = {
    "modules.json": [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(KINDS)
    ],
    "1_WeightedLayerPooling/config.json": {"word_embedding_dimension": 32, "layer_start": 1, "num_hidden_layers": 2},
    "2_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True},
    "3_Dense/config.json": {
        **{"in_features": 32, "out_features": 4, "bias": True},
        "activation_function": "torch.nn.modules.activation.Tanh",
    },
    "4_Normalize/config.json": {},
    "config_sentence_transformers.json": {"prompts": {"query": "q: "}, "default_prompt_name": "query"},
    "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": True},
}
ROWS = 200  # of the tokens that a model has


def write_head(folder):
    write_model(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"output_hidden_states": True}))
    for name, value in OF_HEAD.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    save_file({"layer_weights": np.ones(2, np.float32)}, folder / "1_WeightedLayerPooling" / "model.safetensors")
    tensors = {"linear.weight": np.ones((4, 32), np.float32), "linear.bias": np.zeros(4, np.float32)}
    save_file(tensors, folder / "3_Dense" / "model.safetensors")


def tokenizers():
    """A WordPiece, a byte-level BPE, a Unigram and a word-level tokenizer, as the library writes them."""
    letters = {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyzĠ")}
    bpe = Tokenizer(models.BPE({**letters, "th": 27, "the": 28}, [("t", "h"), ("th", "e")]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel()
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0), ("a", -2.0), ("t", -2.5)], 0))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    words = Tokenizer(models.WordLevel({"a": 0, "the": 1, "[UNK]": 2}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    return [json.loads(tokenizer.to_str()) for tokenizer in (bpe, unigram, words)]


def check_tokens(found):
    assert len(found.lengths) == len(SENTENCES)
    assert found.lengths.max() <= 16
    assert found.lengths.sum() == len(found.flat)
    assert not len(found.flat) or 0 <= found.flat.min() <= found.flat.max() < ROWS


def check_config(config):
    assert isinstance(config, EncoderConfig)
    assert config.parameters <= 40_000_000_000
    assert 0 < config.layer_norm_eps < 1


def check_head(head):
    assert 0 < head.width(tiny_config()) <= 32 * 6


@functools.cache
def shapes():
    return checkpoint.shapes_of(loading.abstract(tiny_config(**SMALL), "float32", False)[1])


SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_layers": 1}


def check_weights(values):
    """Finite float32 arrays of the model's shapes."""
    for path, array in values.items():
        assert (array.dtype, array.shape) == (np.float32, shapes()[path])
        assert np.isfinite(array).all()


def weights(folder):
    return (write_model(folder / "m", **SMALL) / "model.safetensors").read_bytes()


def unpack(data):
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def pack(header, body, size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def sharded(folder):
    (folder / "a.safetensors").write_bytes(whole := weights(folder))
    return {"metadata": {"total_size": len(whole)}, "weight_map": dict.fromkeys(unpack(whole)[0], "a.safetensors")}


X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)


def fitted(folder, name):
    made = {
        "moments": Moments().update(X),
        "whitening": Whitening(n_components=3, beta=0.5).fit(X),
        "spectrum": SpectrumCode(bytes=1).fit(X),
    }
    made[name].save(folder / "saved", {"model": "m"})
    return (folder / "saved").read_bytes()


def check_vectors(found):
    assert found.ndim == 2
    assert found.dtype.kind in "fiu"
    np.array(found)


def npy(folder):
    out = bytes_io.BytesIO()
    np.save(out, X)
    return out.getvalue()


PART = "parts/part-000000.parquet"


def part(folder):
    pytest.importorskip("pyarrow", reason="the extra data")
    (folder / "a.txt").write_text("\n".join(SENTENCES[:4]))
    encoder = Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean")
    embed_files([Source(str(folder / "a.txt"))], folder / "parts", encoder, show_progress=False)
    return (folder / PART).read_bytes()


def read_part(folder):
    """What is read is what was written: every other file has another checksum."""
    found = Parts(folder / "parts").all()
    assert (folder / PART).read_bytes() == (folder / "whole").read_bytes()
    return found


def load_weights(folder):
    return checkpoint.load_parameters(folder, FAMILIES["bert"], shapes())


@dataclasses.dataclass(frozen=True)
class Kind:
    """A file that strangers write: how it is made, as JSON values or bytes, how it is read, and what must hold then."""

    file: str
    make: Callable[[Any], Any]
    read: Callable[[Any], Any]
    check: Callable[[Any], None]
    odd: Any = ODD


DTYPES = ["F32", "F64", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "C64", "F4", "F8_E8M0", "X", ""]
SIZES = st.sampled_from([1, 2, 3, 8, 512, 513, 16_384, 131_072, 5_000_000, 10**9, 10**12, 10**30])
FILES = {
    **{
        f"config of {name}": Kind(
            "config.json", lambda _, name=name: CONFIGS[name], folders.load_config, check_config, ODD | SIZES
        )
        for name in CONFIGS
    },
    **{
        f"head, {name}": Kind(
            name,
            lambda folder, value=value: write_head(folder) or value,
            lambda folder: read_head(folder, tiny_config()),
            check_head,
        )
        for name, value in OF_HEAD.items()
    },
    **{
        f"tokenizer {number}": Kind(
            "tokenizer.json",
            lambda folder, number=number: tokenizer_of(folder, number),
            lambda folder: BulkTokenizer(folder, 16, model_vocab=ROWS)(SENTENCES),
            check_tokens,
        )
        for number in range(4)
    },
    "weights": Kind("model.safetensors", weights, load_weights, check_weights),
    "index of weights": Kind("model.safetensors.index.json", sharded, load_weights, check_weights),
    **{
        name: Kind(
            "saved",
            lambda folder, name=name: fitted(folder, name),
            lambda folder, name=name: loaded(folder, name),
            lambda _: None,
        )
        for name in ("moments", "whitening", "spectrum")
    },
    "part of a corpus": Kind(PART, part, read_part, lambda _: None),
    "vectors": Kind("v.npy", npy, lambda folder: open_vectors(str(folder / "v.npy")), check_vectors),
}


def tokenizer_of(folder, number):
    if number:
        return tokenizers()[number - 1]
    write_tokenizer(folder)
    return json.loads((folder / "tokenizer.json").read_text())


def loaded(folder, name):
    """Padding of a header may be damaged, or damage undo itself; other numbers or facts are noticed."""
    tensors, header = io.load_tensors(folder / "saved", kind=name)
    whole, facts = io.load_tensors(folder / "whole", kind=name)
    assert header == facts
    assert all(np.array_equal(tensors[key], whole[key]) for key in tensors.keys() | whole.keys())


@pytest.fixture
def place(tmp_path, request):
    """The kind of a file, the folder it is in, and what it holds undamaged."""
    kind = FILES[request.param]
    value = kind.make(tmp_path)
    whole = value if isinstance(value, bytes) else json.dumps(value).encode()
    (tmp_path / kind.file).write_bytes(whole)
    (tmp_path / "whole").write_bytes(whole)
    kind.check(kind.read(tmp_path))
    return kind, tmp_path, value


FAST = ["config of bert", "head, modules.json", "tokenizer 0", "weights", "index of weights", "moments", "vectors"]


@pytest.mark.parametrize("place", slow_but(FILES, *FAST), indirect=True)
@fuzz(0.4)
@given(data=st.data())
def test_what_is_damaged_is_refused_by_name_or_read_as_promised(place, data):
    kind, folder, value = place
    if kind.file == "model.safetensors" and data.draw(st.booleans()):
        header, body = unpack(value)
        odd = ODD | SIZES | st.sampled_from(DTYPES) | st.just([0, len(body) - 4])
        size = data.draw(st.sampled_from([None, None, 0, 2**20, 2**63, 2**64 - 1]))
        broken = pack(data.draw(damaged_json(header, odd)), body, size)
    elif isinstance(value, bytes):
        head = value[: 8 + struct.unpack("<Q", value[:8])[0]] if kind.file[:5] in ("model", "saved") else value[:80]
        part = data.draw(st.sampled_from([head, value]))
        broken = data.draw(damaged(part) | st.binary(max_size=60)) + (value[len(head) :] if part is head else b"")
    else:
        broken = data.draw(json_text(value, kind.odd))
    (folder / kind.file).write_bytes(broken)
    with warnings.catch_warnings(action="ignore"):  # numpy tells headers of Python 2
        found, _ = attempt(lambda: kind.read(folder), names=str(folder))
    if found is not None:
        kind.check(found)
    if isinstance(found, EncoderConfig):
        (folder / kind.file).write_text(json.dumps(FAMILIES[found.model_type].config_json(found)))
        assert kind.read(folder) == found


def with_header(text, body=b"\0" * 64):
    text = text.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


STRANGE = {
    "v.npy": [
        *(b"PK\x03\x04" + b"\0" * 40, b"PK\x05\x06" + b"\0" * 18, b"\x80\x04N."),  # zips of arrays, and a pickle
        *map(with_header, ["-" * 9000 + "1", "(" * 9000, "[" * 900 + "]" * 900, "{" * 50, "'\\ud800'", ""]),
        *(
            with_header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
            for descr, order, shape in (
                *(("'|O'", False, (3, 4)), ("[('a', '<f4'), ('b', '|O')]", False, (3, 4))),
                *(("'<f4'", False, (-3, 4)), ("'<f4'", False, (10**14, 10**14)), ("'<f4'", 7, (3, 4))),
                *(("'<f4'", False, "(2**63, 4)"), ("'<f4'", False, (2**63, 4)), ("'<U999999999'", False, (3, 4))),
            )
        ),
    ],
    "model.safetensors": [
        *(b"", b"\x80\x04\x95", b"PK\x03\x04"),
        *(struct.pack("<Q", size) + b"{}" for size in (2**63, 100_000_001)),
        *(pack(b"[" * 100_000, b""), pack({"__metadata__": {"a": 1}}, b"")),
    ],
}


@pytest.mark.parametrize(("file", "content"), [(file, content) for file in STRANGE for content in STRANGE[file]])
def test_strange_files_are_refused(tmp_path, file, content):
    (tmp_path / file).write_bytes(content)
    with pytest.raises((ModelError, DataError), match=file), warnings.catch_warnings(action="ignore"):
        load_weights(tmp_path) if file.startswith("model") else open_vectors(str(tmp_path / file))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_of_weights(tmp_path, dtype):
    """One tensor in another type, the file whole: read as numbers, or refused as not of floating point."""
    header, body = unpack(weights(tmp_path))
    bits = {"F64": 64, "I64": 64, "C64": 64, "F16": 16, "BF16": 16, "F32": 32, "F4": 4}.get(dtype, 8)
    entry = header.pop("embeddings.LayerNorm.weight")
    size = entry["shape"][0] * bits // 8
    header["embeddings.LayerNorm.weight"] = entry | {"dtype": dtype, "data_offsets": [len(body), len(body) + size]}
    start, stop = entry["data_offsets"]
    header["unused"] = {"dtype": "U8", "shape": [stop - start], "data_offsets": [start, stop]}
    for content in (b"\0", b"\xff", b"\x7f", b"\x01"):
        (tmp_path / "model.safetensors").write_bytes(pack(header, body + content * size))
        found, _ = attempt(lambda: load_weights(tmp_path), names="model.safetensors")
        if found is not None:
            check_weights(found)


NUMBERS = st.sampled_from([0.0, -1.0, np.nan, np.inf, -np.inf, 1e308, 1e-320, 7.0])
SHAPES = st.sampled_from([(), (0,), (1,), (4,), (4, 4), (5,), (4, 5), (1, 4), (0, 0)])
TYPES = st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_])
LOADERS = {"moments": Moments.load, "whitening": Whitening.load}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADERS)
@fuzz()
@given(data=st.data())
def test_sealed_files_that_are_wrong(tmp_path, name, data):
    """Written by a stranger, the checksum right: refused, or finite numbers of the right shapes."""
    fitted(tmp_path, name)
    tensors, header = io.load_tensors(tmp_path / "saved", kind=name)
    tensors = {key: value.copy() for key, value in tensors.items()}
    facts = header["provenance"]
    facts = data.draw(st.just(facts) | damaged_json(facts, ODD.filter(lambda value: value != "\ud800")))
    for key in data.draw(st.lists(st.sampled_from(sorted(tensors)), max_size=2, unique=True)):
        with np.errstate(all="ignore"):
            number = np.array(data.draw(NUMBERS)).astype(tensors[key].dtype)
            new = data.draw(st.sampled_from(["number", "all", "shape", "dtype", "remove"]))
            if new == "remove":
                del tensors[key]
            elif new == "number":
                tensors[key].reshape(-1)[data.draw(st.integers(0, tensors[key].size - 1))] = number
            elif new == "dtype":
                tensors[key] = tensors[key].astype(data.draw(TYPES))
            else:
                tensors[key] = np.full(tensors[key].shape if new == "all" else data.draw(SHAPES), number)
    io.save_tensors(tmp_path / "sealed", tensors, kind=name, header={"provenance": facts})
    found, _ = attempt(lambda: LOADERS[name](tmp_path / "sealed"), names="sealed")
    if isinstance(found, Moments):
        assert found.n >= 0
        assert found.M2.shape == (len(found.mean),) * 2
        assert np.isfinite(found.M2).all()
    elif isinstance(found, Whitening):
        with np.errstate(all="ignore"):
            W, bias = found.kernel
        assert W.shape == (4, len(bias))


@pytest.mark.slow
@fuzz(0.04)
@given(data=st.data(), name=st.sampled_from(sorted(CONFIGS)))
def test_a_configuration_that_is_read_can_be_built(tmp_path, data, name):
    """Shapes only: an activation or a size that no layer takes shows here."""
    (tmp_path / "config.json").write_bytes(data.draw(json_text(CONFIGS[name])))
    config, _ = attempt(lambda: folders.load_config(tmp_path), names="config.json")
    if config is not None and config.num_layers <= 8:
        attempt(lambda: loading.abstract(config, "float32", False))
