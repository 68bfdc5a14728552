"""Rules of a stranger's tokenizer that make much of little: refused before they are applied to anything."""

import base64
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from jaxwhiten.errors import ModelError
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.text.tokenization import LIMIT, check_growth
from tests.tiny import write_model


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


BOMB = [replace({"String": old}, new * 1000) for old, new in ("ae", "eg", "gi", "it")]


def charsmap(*made):
    """A table of SentencePiece with an empty trie."""
    raw = (8).to_bytes(4, "little") + bytes(8) + "\0".join(made).encode()
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}


def tokenizer(normalizer=(), pre_tokenizer=(), post_processor=None):
    """The file of a tokenizer with these rules."""
    raw = json.loads(Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]")).to_str())
    raw["normalizer"] = {"type": "Sequence", "normalizers": list(normalizer)}
    raw["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": list(pre_tokenizer)}
    return json.dumps(raw | {"post_processor": post_processor})


def state(part):
    return json.loads(part.__getstate__())


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path):
    """Before it is read: the rules are applied to its own added tokens then."""
    folder = write_model(tmp_path / "model")
    file = folder / "tokenizer.json"
    raw = json.loads(file.read_text())
    raw["normalizer"] = {"type": "Sequence", "normalizers": BOMB}
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    raw["added_tokens"].append({"id": 200, "content": "banana", **token})
    file.write_text(json.dumps(raw))
    with pytest.raises(ModelError, match="its rules, mainly"):
        BulkTokenizer(folder, 16)


SPACES, SPACE = {"Regex": " {2,}"}, {"String": " "}
METASPACE, BYTES = state(pre_tokenizers.Metaspace()), state(pre_tokenizers.ByteLevel())
NMT_NFKC = charsmap("a", "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647", "x" * 18)  # 18 are the most in the real one
LIKE = {
    "roberta": lambda: tokenizer([], [BYTES], state(processors.RobertaProcessing(("</s>", 2), ("<s>", 0)))),
    "xlm-roberta": lambda: tokenizer([NMT_NFKC, replace(SPACES, "▁")], [{"type": "WhitespaceSplit"}, METASPACE]),
    "albert": lambda: tokenizer(
        [replace({"String": "``"}, '"'), {"type": "NFKD"}, {"type": "Lowercase"}, NMT_NFKC, replace(SPACES, " ")],
        [METASPACE],
    ),
    "llama": lambda: tokenizer([{"type": "Prepend", "prepend": "▁"}, replace(SPACE, "▁")]),
}


@pytest.mark.parametrize("name", LIKE)
def test_rules_of_published_models_are_far_from_the_limit(name, monkeypatch):
    monkeypatch.setattr("jaxwhiten.text.tokenization.LIMIT", 72)
    check_growth(Path(name), LIKE[name]())


TEMPLATE = processors.TemplateProcessing(single=" ".join(["$A"] * (4 * LIMIT + 4)), pair="$A $B", special_tokens=[])


@pytest.mark.parametrize(
    "make",
    [
        lambda: tokenizer(BOMB),
        lambda: tokenizer([{"type": "Sequence", "normalizers": BOMB[:1]}]),
        lambda: tokenizer([replace({"String": ""}, "a" * LIMIT)]),
        lambda: tokenizer([replace({"Regex": "x*"}, "a" * LIMIT)]),
        lambda: tokenizer([{"type": "Prepend", "prepend": "a" * LIMIT}]),
        lambda: tokenizer([charsmap("a", "b" * (LIMIT + 1))]),
        lambda: tokenizer([charsmap("b" * 18)] * 2),
        lambda: tokenizer([replace({"String": "a"}, "\ufdfa"), {"type": "NFKD"}] * 2),
        lambda: tokenizer([], [BYTES] * 3),
        lambda: tokenizer(post_processor=state(TEMPLATE)),
    ],
)
def test_every_rule_that_lengthens_is_counted(make):
    with pytest.raises(ModelError, match=r"^here: its rules, mainly \{.*than 128"):
        check_growth(Path("here"), make())
