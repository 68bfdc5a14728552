"""Any legal folder of sentence-transformers gives the vectors that it gives there, before and after it is saved."""

import json
import random
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxwhiten import Encoder
from jaxwhiten.encoding.encoder import settings_of
from jaxwhiten.head.pooling import MODES
from jaxwhiten.head.vectors import ACTIVATIONS
from tests.conftest import slow_but
from tests.tiny import SENTENCES

TEXTS = [SENTENCES[i] for i in (0, 2, 3, 7, 8)]  # among them the empty one: few, so that few shapes are compiled
OLDER = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
PROMPTS = {"query": "Music or water: ", "document": "", "topic": "Two dogs", "long": "a " * 40}
NEW = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


def drawn(draw):
    """The modules of a folder, each a name, its config.json and its tensors; and the width of the vectors."""
    modes = draw.sample(sorted(MODES), draw.choice([1, 1, 2, 3]))
    pooling = {"pooling_mode": modes}
    if modes == [mode for mode in MODES if mode in modes] and draw.random() < 0.7:
        pooling = {f"pooling_mode_{key}": mode in modes for mode, key in zip(MODES, OLDER, strict=True)}
    pooling |= {"include_prompt": False} if draw.random() < 0.4 else {}
    if draw.random() < 0.4:
        first = draw.choice([0, 1, 2])
        weights = {"layer_weights": np.array([draw.uniform(0.5, 2) for _ in range(3 - first)], np.float32)}
        config = {"word_embedding_dimension": 32, "layer_start": first, "num_hidden_layers": 2}
        yield "WeightedLayerPooling", config, weights
    yield "Pooling", {"word_embedding_dimension": 32, **pooling}, {}
    width, rng = 32 * len(modes), np.random.default_rng(draw.randrange(1000))
    for _ in range(draw.choice([0, 0, 1, 2])):
        outputs, residual, bias = draw.choice([width, 12, 20]), draw.random() < 0.4, draw.random() < 0.7
        name = draw.choice(ACTIVATIONS)
        config = {"in_features": width, "out_features": outputs, "bias": bias, "use_residual": residual}
        package = "linear" if name == "Identity" else "activation"
        shapes = {"linear.weight": (outputs, width), "linear.bias": (outputs,), "residual.weight": (outputs, width)}
        kept = [True, bias, residual and outputs != width]
        tensors = {
            name: rng.normal(size=shape).astype(np.float32) * 0.4
            for (name, shape), there in zip(shapes.items(), kept, strict=True)
            if there
        }
        yield "Dense", config | {"activation_function": f"torch.nn.modules.{package}.{name}"}, tensors
        width = outputs
    if draw.random() < 0.5:
        yield "Normalize", {}, {}


def written(tiny_model, folder, draw):
    """A folder, and prompts of it by name."""
    shutil.copytree(tiny_model, folder)
    modules = [("Transformer", None, {}), *drawn(draw)]
    new = not any(kind not in NEW for kind, *_ in modules) and draw.random() < 0.3
    rows = []
    for number, (kind, config, tensors) in enumerate(modules):
        path = f"{number}_{kind}" * bool(number)
        name = NEW[kind] if new else f"sentence_transformers.models.{kind}"
        rows.append({"idx": number, "name": str(number), "path": path, "type": name})
        (folder / path).mkdir(exist_ok=True)
        if config is not None:
            (folder / path / "config.json").write_text(json.dumps(config))
        if tensors:
            save_file(tensors, folder / path / "model.safetensors")
    prompts = {name: PROMPTS[name] for name in ("query", "document", *draw.sample(("topic", "long"), 1))}
    settings = {
        "prompts": prompts,
        "default_prompt_name": draw.choice([None, *prompts]),
        "similarity_fn_name": "cosine",
    }
    settings |= {"truncate_dim": 7} if draw.random() < 0.2 else {}
    config = json.loads((folder / "config.json").read_text()) | {"output_hidden_states": draw.random() < 0.8}
    length = {"max_seq_length": draw.choice([9, 24])}
    for file, value in (
        *(("modules.json", rows), ("config_sentence_transformers.json", settings), ("config.json", config)),
        ("sentence_bert_config.json", {"transformer_task": "feature-extraction"} if new else length),
    ):
        (folder / file).write_text(json.dumps(value))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {"model_max_length": 20, "padding_side": draw.choice(["left", "right"])}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder, prompts


@pytest.mark.parametrize("seed", slow_but(range(60), 1))
def test_a_folder_is_read_and_saved_as_by_sentence_transformers(tiny_model, tmp_path, seed):
    library = pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")

    def read(folder):
        return library.SentenceTransformer(str(folder), device="cpu")

    draw = random.Random(seed)
    folder, prompts = written(tiny_model, tmp_path / "model", draw)
    encoder = Encoder.from_pretrained(folder, engine=draw.choice(["auto", "jax"]))
    peer = read(folder)
    how = [
        *({}, {"prompt": "Stir "}, {"prompt": ""}, {"normalize_embeddings": True}, {"truncate_dim": 5}),
        *({"prompt_name": name, "normalize_embeddings": True, "truncate_dim": 6} for name in prompts),
    ]

    def equal(one, other, options, name="encode"):
        found, wanted = (getattr(model, name)(TEXTS, batch_size=1, **options) for model in (one, other))
        np.testing.assert_allclose(found, wanted, atol=2e-5 * (1 + np.abs(wanted).max()), err_msg=f"{name} {options}")

    for options in how:
        equal(encoder, peer, options)
    for name in ("encode_query", "encode_document"):
        equal(encoder, peer, {}, name)
    blocks = list(encoder.encode_stream(iter(TEXTS), block_size=2))
    whole = encoder.encode(TEXTS)
    near = 2e-6 * (1 + np.abs(whole).max())
    np.testing.assert_allclose(np.concatenate(blocks), whole, atol=near)
    np.testing.assert_allclose(encoder.encode(TEXTS[2]), whole[2], atol=near)
    assert (encoder.max_length, encoder.dimension) == (peer.max_seq_length, len(peer.encode("a")))

    again = Encoder.from_pretrained(encoder.save(tmp_path / "saved"), engine="jax")
    theirs = read(tmp_path / "saved")
    assert again.prompts == encoder.prompts
    assert settings_of(again).default_prompt_name == theirs.default_prompt_name
    peer.save(str(tmp_path / "theirs"))
    ours, peers = Encoder.from_pretrained(tmp_path / "theirs", engine="jax"), read(tmp_path / "theirs")
    for options in draw.sample(how, 2):
        equal(again, peer, options)
        equal(theirs, peer, options)
        equal(ours, peers, options)
