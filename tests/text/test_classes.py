"""Token ids of every class of tokenizers are those of transformers' AutoTokenizer, whatever the folder's files hold."""

import functools
import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from jaxwhiten.errors import ModelError
from jaxwhiten.text import BulkTokenizer, tokenization
from tests.conftest import slow_but
from tests.tiny import SENTENCES

TEXTS = [
    *SENTENCES[:6],
    *(
        "A MAN plays a Guitar.",
        " Naïve CAFÉ, [SEP] water [MASK] Boils",
        "北京 water",
        "Two <pad> dogs </s> run. [PAD]",
        "",
    ),
    *("[X] and <s>[CLS] <unk> <x> or [UNK]", " ".join(SENTENCES)),
]
PAIRS = list(zip(TEXTS, reversed(TEXTS), strict=True))
LENGTH = 40
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[X]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<x>"]
WORDS, BYTES, PIECES = ("WordPiece", BERT), ("BPE", ROBERTA), ("Unigram", ROBERTA)
# Model type, class (of the file, or None), and what is trained.
CLASSES = {
    "BertTokenizer": ("bert", *WORDS),
    "BertTokenizerFast": ("bert", *WORDS),
    "DistilBertTokenizer": ("distilbert", *WORDS),
    "ElectraTokenizer": ("electra", *WORDS),
    "bert": ("bert", *WORDS),
    "nomic_bert": ("nomic_bert", *WORDS),
    "MPNetTokenizer": ("mpnet", "WordPiece", [*ROBERTA, "[UNK]"]),
    "RobertaTokenizer": ("roberta", *BYTES),
    "roberta": ("roberta", *BYTES),
    "XLMRobertaTokenizer": ("xlm-roberta", *PIECES),
    "gte": ("gte", *PIECES),
    "CamembertTokenizer": ("roberta", *PIECES),
    "AlbertTokenizer": ("albert", "Unigram", ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "[X]"]),
    "T5Tokenizer": ("t5", "Unigram", ["<pad>", "</s>", "<unk>", "<x>"]),
    "mt5": ("mt5", "Unigram", ["<pad>", "</s>", "<unk>", "<x>", *(f"<extra_id_{i}>" for i in range(100))]),
    "Qwen2Tokenizer": ("qwen3", "BPE", ["<|endoftext|>", "<x>"]),
    "GemmaTokenizer": ("gemma3_text", "BPE", ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<x>"]),
    "PreTrainedTokenizerFast": ("bert", *WORDS),
    "modernbert": ("modernbert", *WORDS),
    "ministral3": ("ministral3", *BYTES),
}


@functools.cache
def trained(kind, *special):
    """The file of a tokenizer as the library's trainers save it: without a post-processor."""
    special = list(special)
    if kind == "WordPiece":
        tokenizer, words = Tokenizer(models.WordPiece(unk_token="[UNK]")), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=180, special_tokens=special)
    elif kind == "BPE":
        tokenizer, words = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet)
    else:
        tokenizer, words = Tokenizer(models.Unigram()), pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=180, special_tokens=special, unk_token="<unk>")
    tokenizer.pre_tokenizer = words
    tokenizer.train_from_iterator([*SENTENCES, *TEXTS] * 3, trainer)
    return tokenizer.to_str()


def write(folder, name):
    """A folder with the tokenizer of a class, and nothing else in its files."""
    model_type, kind, special = CLASSES[name]
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(trained(kind, *special))
    update(folder / "config.json", model_type=model_type)
    if name[0].isupper():
        update(folder / "tokenizer_config.json", tokenizer_class=name)
    return folder


def update(file, **keys):
    before = json.loads(file.read_text()) if file.is_file() else {}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(before | keys))


def load(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder))


def published(folder):
    """The file that transformers saves."""
    load(folder).backend_tokenizer.save(str(folder / "tokenizer.json"))


def other(folder):
    """A special token of the class's tokens that takes part in none of its rules."""
    tokens = [token["content"] for token in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]]
    return next(token for token in tokens if token in ("[X]", "<x>"))


def renamed(file, *keys, decoder=False):
    def change(folder):
        published(folder)
        update(folder / file, **dict.fromkeys((f"{key}_token" for key in keys), other(folder)))
        if decoder:
            added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
            table = {token.pop("id"): token for token in added}
            update(folder / "tokenizer_config.json", added_tokens_decoder=table)

    return change


def processed(folder):
    """A post-processor that no class makes."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    token = (other(folder), tokenizer.token_to_id(other(folder)))
    tokenizer.post_processor = processors.BertProcessing(token, token)
    tokenizer.save(str(folder / "tokenizer.json"))


def more(folder):
    """A special token without an id."""
    published(folder)
    update(folder / "tokenizer_config.json", additional_special_tokens=["<new>"], mask_token="<newer>")


def stripped(folder):
    published(folder)
    mask = {"content": other(folder), "lstrip": True, "rstrip": True, "normalized": False, "single_word": False}
    update(folder / "special_tokens_map.json", mask_token=mask)


MAP, CONFIG = "special_tokens_map.json", "tokenizer_config.json"
FILES = {
    "no post-processor": lambda folder: None,
    "as published": published,
    "another post-processor": processed,
    "sep in the map": renamed(MAP, "sep"),
    "cls in the map": renamed(MAP, "cls", "bos"),
    "sep in the config": renamed(CONFIG, "sep", "eos"),
    "cls in the config": renamed(CONFIG, "cls"),
    "unk and pad in the config": renamed(CONFIG, "unk", "pad"),
    "the map beside a table": renamed(MAP, "sep", "cls", decoder=True),
    "the config beside a table": renamed(CONFIG, "sep", "cls", decoder=True),
    "a mask that strips": stripped,
    "more tokens": more,
    "added_tokens.json": lambda folder: update(folder / "added_tokens.json", **{"<new>": 900}),
    "rules of the config": lambda folder: update(
        folder / CONFIG, do_lower_case=False, strip_accents=True, add_prefix_space=True, keep_accents=True
    ),
    "a damaged setting": lambda folder: update(folder / CONFIG, do_lower_case="x", add_prefix_space=[], unk_token=3),
}


def rows(tokens):
    return [tokens.flat[i : i + n].tolist() for i, n in zip(tokens.starts, tokens.lengths, strict=True)]


def ids(tokenizer):
    return rows(tokenizer(TEXTS)), rows(tokenizer.pairs(PAIRS))


CASES = [(name, "no post-processor") for name in CLASSES]
CASES += [(name, files) for name in ("BertTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer") for files in FILES]
FAST = [("BertTokenizer", files) for files in FILES] + [(name, "no post-processor") for name in ("roberta", "mt5")]


@pytest.mark.parametrize(("name", "files"), slow_but(dict.fromkeys(CASES), *FAST))
def test_ids_are_those_of_transformers(tmp_path, name, files):
    folder = write(tmp_path / "model", name)
    FILES[files](folder)
    try:
        theirs = load(folder)
    except Exception:
        with pytest.raises(ModelError):
            BulkTokenizer(folder, LENGTH)
        return
    expected = theirs(TEXTS, truncation=True, max_length=LENGTH)["input_ids"]
    options = {"truncation": "longest_first", "max_length": LENGTH}
    of_pairs = theirs(*map(list, zip(*PAIRS, strict=True)), **options)["input_ids"]
    ours = BulkTokenizer(folder, LENGTH)
    assert ids(ours) == (expected, of_pairs)
    assert ours.vocab_size == Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    ours.save(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_text((folder / "config.json").read_text())
    again = BulkTokenizer(tmp_path / "saved", LENGTH)
    assert ids(again) == (expected, of_pairs)
    assert again.vocab_size == ours.vocab_size
    assert load(tmp_path / "saved")(TEXTS, truncation=True, max_length=LENGTH)["input_ids"] == expected


def test_transformers_is_asked_once(tmp_path, monkeypatch):
    folder = write(tmp_path / "model", "BertTokenizer")
    first = ids(BulkTokenizer(folder, LENGTH))
    monkeypatch.setattr(tokenization, "_transformers_tokenizer", None)
    assert ids(BulkTokenizer(folder, LENGTH)) == first
    update(folder / CONFIG, do_lower_case=False)
    with pytest.raises(ModelError):
        BulkTokenizer(folder, LENGTH)
