"""Poolings of research: `ditto`, `promptbert` and `idf`, which this module adds to `jaxwhiten.POOLINGS`.

They run in JAX, and no other library reads them. `ditto` takes encoders whose attention knows positions by the
embeddings alone, as BERT's does, with norms behind the sums.

References:
  Chen et al. 2023, "Ditto: A Simple and Efficient Approach to Improve Sentence Embeddings", section 3 (ditto).
  Jiang et al. 2022, "PromptBERT: Improving BERT Sentence Embeddings with Prompts", section 4 (promptbert).
  Zhang et al. 2020, "BERTScore: Evaluating Text Generation with BERT", section 3 (idf).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxwhiten import POOLINGS, Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.head import Mean, Pooling, States, StateStep, Step, array, step
from jaxwhiten.models import EncoderConfig
from jaxwhiten.text import TextForm, Texts, TokenIds, text_blocks

TEMPLATE = 'This sentence : "{text}" means {mask} .'
_BLOCK = 8192  # sentences whose tokens are counted at a time
_WEIGHTS: dict[str, np.ndarray] = {}  # of `idf`, by the name of their table

Maker = Callable[[Any], tuple[Step, ...]]


def weighted_sum(x: Any, weights: Any) -> Any:
    """The sum of the tokens [batch, length, d], each with its weight."""
    return (x.astype(np.float32) * weights[:, :, None]).sum(axis=1)


@step
class Ditto(Pooling):
    """Average of embeddings and last layer, with each token weighted by its attention to itself.

    Layers and heads are counted from 0. The paper chooses 0 and 9 for bert-base, 0 and 4 for roberta-base, 0 and 10 for
    ELECTRA. The attention is computed from the states that the layer reads: `query` and `key` are the head's maps, with
    the bias as the last row.
    """

    layer: int
    head: int
    query: Any = array()
    key: Any = array()

    def __call__(self, states: States) -> Any:
        xp = states.np
        hidden = states.output.hidden_states
        x = hidden[self.layer].astype(np.float32)
        query, key = (xp.matmul(x, part[:-1], precision="highest") + part[-1] for part in (self.query, self.key))
        scores = xp.matmul(query, key.swapaxes(1, 2), precision="highest") / math.sqrt(self.query.shape[1])
        scores = xp.where(states.mask[:, None] > 0, scores, np.finfo(np.float32).min)
        attention = xp.exp(scores - scores.max(axis=2, keepdims=True))
        itself = attention.diagonal(axis1=1, axis2=2) / attention.sum(axis=2)
        mean = (hidden[0].astype(np.float32) + hidden[-1].astype(np.float32)) / 2
        return weighted_sum(mean, itself * states.mask)

    def words(self) -> str:
        return f"ditto {self.layer}+{self.head}"


@dataclasses.dataclass(frozen=True)
class Template(TextForm):
    """A template around every sentence, as part of the special tokens, so that only the sentence is cut."""

    template: str = TEMPLATE
    mask_id: int = 0

    def with_prompt(self, text: str) -> TextForm:
        if text:
            raise InputError(f"The template {self.template!r} accepts no prompt: omit {text!r}.")
        return self

    def adapted(self, tokenizer: Any, max_length: int) -> Any:
        from tokenizers import Tokenizer
        from tokenizers.processors import TemplateProcessing

        text = self.template.replace("{mask}", tokenizer.id_to_token(self.mask_id))
        result = Tokenizer.from_str(tokenizer.to_str())
        result.no_truncation()
        before, after = (result.encode(part, add_special_tokens=False).ids for part in text.split("{text}"))
        probe = result.encode("a")
        places = [place for place, special in enumerate(probe.special_tokens_mask) if not special]
        pieces = {"before": [*probe.ids[: places[0]], *before], "after": [*after, *probe.ids[places[-1] + 1 :]]}
        if (size := sum(map(len, pieces.values()))) > max_length:
            raise InputError(f"max_length is {max_length}, but the template {self.template!r} has {size} tokens.")
        result.post_processor = TemplateProcessing(
            single=" ".join([*["before"] * bool(pieces["before"]), "$A", *["after"] * bool(pieces["after"])]),
            special_tokens=[
                {"id": name, "ids": ids, "tokens": [result.id_to_token(i) for i in ids]} for name, ids in pieces.items()
            ],
        )
        result.enable_truncation(max_length, direction=tokenizer.truncation["direction"])
        return super().adapted(result, max_length)


@step
class MaskToken(Pooling):
    """The mask token of a template with `{text}` and `{mask}`; mask tokens of the sentence itself are ignored."""

    template: str
    mask_id: int

    def pool(self, x: Any, states: States) -> Any:
        xp = states.np
        is_mask = (states.ids == self.mask_id) & (states.mask > 0)
        last = is_mask.shape[1] - 1 - is_mask[:, ::-1].argmax(axis=1)
        is_last = self.template.index("{text}") < self.template.index("{mask}")
        position = last if is_last else is_mask.argmax(axis=1)
        return xp.take_along_axis(x, position[:, None, None], axis=1)[:, 0].astype(np.float32)

    @property
    def form(self) -> TextForm:
        return Template(template=self.template, mask_id=self.mask_id)

    def words(self) -> str:
        return f"mask token of {self.template!r}"


def ditto(parameters: str | None) -> tuple[str, Maker]:
    """`ditto:LAYER+HEAD`, see `Ditto`."""
    match = re.fullmatch(r"\s*(-?\d{1,4})\s*[,+]\s*(-?\d{1,4})\s*", parameters or "")
    if match is None:
        raise InputError(
            f"Pooling ditto:{parameters or ''}: expected ditto:LAYER+HEAD, such as ditto:0+9 for bert-base."
        )
    layer = int(match[1])
    head = int(match[2])

    def steps(source: Any) -> tuple[Step, ...]:
        if source is None:
            raise InputError("Pooling 'ditto' needs the weights of an encoder.")
        config = source.config
        _check(config, layer, head)
        part = list(source.model().stack())[layer][0].attention
        queries = config.num_heads
        query = _of_head(part.query, head % queries, part.head_size)
        key = _of_head(part.key, head % queries * part.kv_heads // queries, part.head_size)
        return (Ditto(layer % config.num_layers, head % queries, query, key),)

    return f"{layer}+{head}", steps


def _check(config: EncoderConfig, layer: int, head: int) -> None:
    for part, number, size in (("layer", layer, config.num_layers), ("head", head, config.num_heads)):
        if not -size <= number < size:
            raise InputError(f"There is no {part} {number}; this model has {part}s 0 to {size - 1}.")
    kinds = set(config.attention)
    if config.pre_norm or config.head_norm or config.relative_buckets or any(kind.rotary_theta for kind in kinds):
        raise InputError(f"Pooling 'ditto' takes encoders such as BERT; {config.model_type} has another attention.")


def _of_head(linear: Any, head: int, size: int) -> np.ndarray:
    """The map of one head, with the bias as the last row."""
    columns = slice(head * size, (head + 1) * size)
    kernel = np.asarray(linear.kernel[...], np.float32)[:, columns]
    if linear.bias is None:
        bias = np.zeros(size, np.float32)
    else:
        bias = np.asarray(linear.bias[...], np.float32)[columns]
    return np.concatenate([kernel, bias[None]])


def promptbert(parameters: str | None) -> tuple[str, Maker]:
    """`promptbert`: the mask token in a template around the sentence; `promptbert:TEMPLATE` sets another template."""
    template = parameters or TEMPLATE
    if any(template.count(placeholder) != 1 for placeholder in ("{text}", "{mask}")):
        raise InputError(f"Pooling promptbert:{template}: expected a template with {{text}} and {{mask}}, each once.")

    def steps(source: Any) -> tuple[Step, ...]:
        if source is None or source.tokenizer.mask_token_id is None:
            raise InputError("Pooling 'promptbert' needs a mask token, and the model's tokenizer has none.")
        return (MaskToken(template, source.tokenizer.mask_token_id),)

    return parameters or "", steps


@step
class TokenWeights(StateStep):
    """Weights tokens by their ids. If all weights of a sentence are 0, all its tokens count alike.

    `weights` are float32 [vocab]; `table` names them.
    """

    weights: Any = array()
    table: str = ""

    segmented = True

    def __call__(self, states: States) -> States:
        weights = self.weights[states.ids] * states.weights
        some = weights.sum(axis=-1, keepdims=True) > 0
        return dataclasses.replace(states, weights=states.np.where(some, weights, states.weights))

    def words(self) -> str:
        return "weighted tokens"


def idf(parameters: str | None) -> tuple[str, Maker]:
    """`idf:TABLE`: mean of the last layer, with each token weighted by its inverse document frequency.

    `fit_idf` makes the table and returns the name.
    """
    if parameters is None or parameters not in _WEIGHTS:
        raise InputError(
            f"Pooling 'idf:{parameters or ''}' needs counts of tokens: call eval.poolings.fit_idf, and use the name"
            " that it returns."
        )
    return parameters, lambda source: (TokenWeights(_WEIGHTS[parameters], parameters), Mean())


def _document_frequencies(tokens: TokenIds, vocab_size: int) -> np.ndarray:
    """The number of sentences in which each token id occurs."""
    sentence = np.repeat(np.arange(len(tokens.lengths)), tokens.lengths)
    occurring = np.unique(sentence * vocab_size + tokens.flat) % vocab_size
    return np.bincount(occurring, minlength=vocab_size)


def fit_idf(encoder: Encoder, sentences: Texts) -> str:
    """Counts the sentences in which each token occurs; returns the name of the pooling with these weights.

    A token in count of n sentences has the weight log((n + 1) / (count + 1)).
    """
    total = 0
    counts = np.zeros(encoder.view.core.config.vocab_size, np.int64)
    for block in text_blocks(sentences, _BLOCK):
        total += len(block)
        counts += _document_frequencies(encoder.view.core.tokenizer(block), len(counts))
    if not total:
        raise InputError("No sentences to count tokens in.")
    weights = np.log((total + 1) / (counts + 1)).astype(np.float32)
    table = hashlib.sha256(weights.tobytes()).hexdigest()[:8]
    _WEIGHTS[table] = weights
    return f"idf:{table}"


POOLINGS.update({"ditto": ditto, "promptbert": promptbert, "idf": idf})
