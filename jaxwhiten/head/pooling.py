"""From hidden states to one vector a sentence: one pure function a pooling, one registry.

The mask counts [CLS] and [SEP] as tokens, padding never. All poolings return float32.

`POOLINGS` holds those that hidden states and mask are enough for. Others take parameters in their names, after a
colon, and are in `PARAMETRIC`: `layers:1+12`, `ditto:0+9`, `prompt`, `idf:…`.

References:
  Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval" (first_last_avg).
  Reimers & Gurevych 2019, "Sentence-BERT", section 3 (cls, mean, max).
  Gao et al. 2021, "SimCSE": what that paper calls first-last is `embeddings_last_avg` here.
  Huang et al. 2021, "WhiteningBERT: An Easy Unsupervised Sentence Embedding Approach", section 3 (layers).
  Chen et al. 2023, "Ditto: A Simple and Efficient Approach to Improve Sentence Embeddings", section 3 (ditto).
  Jiang et al. 2022, "PromptBERT: Improving BERT Sentence Embeddings with Prompts", section 4 (prompt).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxwhiten.errors import InputError, ModelError, unknown_name
from jaxwhiten.models.config import EncoderConfig
from jaxwhiten.models.layers import EncoderOutput
from jaxwhiten.text.tokenization import PLAIN, TextForm

Pooled = Float[Array, "batch d"]
Mask = Int[Array, "batch length"]

AUTO = "auto"  # what the model's own folder says, see sentence_head.py
PROMPT = 'This sentence : "{text}" means {mask} .'


def masked_mean(x: Float[Array, "batch length d"], mask: Mask) -> Pooled:
    """Mean over the tokens whose mask is 1; a row without tokens gives zeros."""
    weights = mask.astype(jnp.float32)[:, :, None]
    total = jnp.sum(x.astype(jnp.float32) * weights, axis=1)
    return total / jnp.maximum(jnp.sum(weights, axis=1), 1.0)


def cls(output: EncoderOutput, mask: Mask) -> Pooled:
    """Last layer, first token."""
    del mask
    return output.hidden_states[-1][:, 0].astype(jnp.float32)


def mean(output: EncoderOutput, mask: Mask) -> Pooled:
    """Masked mean of the last layer."""
    return masked_mean(output.hidden_states[-1], mask)


def max_over_time(output: EncoderOutput, mask: Mask) -> Pooled:
    """Masked maximum of the last layer."""
    x = output.hidden_states[-1].astype(jnp.float32)
    return jnp.max(jnp.where(mask[:, :, None] > 0, x, jnp.finfo(jnp.float32).min), axis=1)


def _mean_of_layers(first: int, second: int) -> Callable[[EncoderOutput, Mask], Pooled]:
    """Masked mean of two layers' average. The release sums them; halving changes no cosine and no whitening."""

    def pool(output: EncoderOutput, mask: Mask) -> Pooled:
        return masked_mean((output.hidden_states[first] + output.hidden_states[second]) / 2, mask)

    return pool


first_last_avg = _mean_of_layers(1, -1)
embeddings_last_avg = _mean_of_layers(0, -1)
last2avg = _mean_of_layers(-1, -2)


def pooler(output: EncoderOutput, mask: Mask) -> Pooled:
    """BERT's pooler output: a dense layer and tanh on the first token."""
    del mask
    if output.pooler is None:
        raise ModelError("This model has no pooler; take another pooling, such as 'cls' or 'mean'.")
    return output.pooler.astype(jnp.float32)


POOLINGS: dict[str, Callable[[EncoderOutput, Mask], Pooled]] = {
    "cls": cls,
    "mean": mean,
    "max": max_over_time,
    "first_last_avg": first_last_avg,
    "embeddings_last_avg": embeddings_last_avg,
    "last2avg": last2avg,
    "pooler": pooler,
}
ALIASES = {"last_avg": "mean"}


class Tokens(NamedTuple):
    """What a pooling may know of a batch beside its hidden states.

    Attributes:
      mask: 1 for tokens, 0 for padding.
      ids: Token ids, or None where they are not at hand.
      mask_token: Id of the tokenizer's mask token, or None.
      idf: Weights of all token ids, by the table's name.
    """

    mask: Mask
    ids: Int[Array, "batch length"] | None = None
    mask_token: int | None = None
    idf: Mapping[str, Float[Array, " vocab"]] = {}


@dataclasses.dataclass(frozen=True)
class Pooling:
    """A pooling as its name says it.

    Attributes:
      name: The name, in its canonical form.
      function: From what the encoder returned and the tokens to [batch, d].
      check: Raises if a model of this configuration cannot be pooled so.
      form: How sentences are written before they are tokenised. Poolings of another form take another forward pass.
      idf: The table of weights it needs, or None.
    """

    name: str
    function: Callable[[EncoderOutput, Tokens], Pooled]
    check: Callable[[EncoderConfig], None] = lambda config: None
    form: TextForm = PLAIN
    idf: str | None = None


def _plain(name: str) -> Pooling:
    def check(config: EncoderConfig) -> None:
        if name == "pooler" and not config.pooler:
            raise ModelError("This model has no pooler; take another pooling, such as 'cls' or 'mean'.")

    return Pooling(name, lambda output, tokens: POOLINGS[name](output, tokens.mask), check)


def _integers(name: str, parameters: str, usage: str, count: int | None = None) -> list[int]:
    """Whole numbers between "+" or ",". The canonical form has "+", so that names can stand in a list with commas."""
    numbers = re.split(r"\s*[,+]\s*", parameters.strip())
    if not all(re.fullmatch(r"-?\d{1,4}", n) for n in numbers) or (count and len(numbers) != count):
        raise InputError(f"Pooling {name}:{parameters}: expected {usage}.")
    return [int(n) for n in numbers]


def _in_range(name: str, what: str, number: int, size: int) -> None:
    if not -size <= number < size:
        raise InputError(f"Pooling {name!r}: there is no {what} {number}; this model has {what}s 0 to {size - 1}.")


def layers(parameters: str) -> Pooling:
    """`layers:I+J+...`: masked mean of the average of these hidden states. 0 is the embedding output, -1 the last."""
    chosen = _integers("layers", parameters, "layers:I+J+..., such as layers:1+12")
    name = "layers:" + "+".join(map(str, chosen))

    def function(output: EncoderOutput, tokens: Tokens) -> Pooled:
        # A layer's mean is the same in every pooling that has it: the compiler takes it once for a whole grid.
        means = [masked_mean(output.hidden_states[i], tokens.mask) for i in chosen]
        return jnp.mean(jnp.stack(means), axis=0)

    def check(config: EncoderConfig) -> None:
        for number in chosen:
            _in_range(name, "hidden state", number, config.num_layers + 1)

    return Pooling(name, function, check)


def ditto(parameters: str) -> Pooling:
    """`ditto:LAYER+HEAD`: embeddings and last layer averaged, each token weighted by its attention to itself.

    Layers and heads are counted from 0. The paper's choices: 0 and 9 for bert-base, 0 and 4 for roberta-base, 0 and
    10 for ELECTRA.
    """
    layer, head = _integers("ditto", parameters, "ditto:LAYER+HEAD, such as ditto:0+9 for bert-base", 2)
    name = f"ditto:{layer}+{head}"

    def function(output: EncoderOutput, tokens: Tokens) -> Pooled:
        weights = output.attention_diagonals[layer][:, head] * tokens.mask
        x = (output.hidden_states[0].astype(jnp.float32) + output.hidden_states[-1].astype(jnp.float32)) / 2
        return jnp.sum(x * weights[:, :, None], axis=1)

    def check(config: EncoderConfig) -> None:
        _in_range(name, "layer", layer, config.num_layers)
        _in_range(name, "head", head, config.num_heads)

    return Pooling(name, function, check)


def prompt(parameters: str) -> Pooling:
    """`prompt`: the last layer's vector of the mask token in a template around the sentence.

    `prompt:TEMPLATE` takes another one, with `{text}` and `{mask}` in it.
    """
    template = parameters or PROMPT
    if any(template.count(place) != 1 for place in ("{text}", "{mask}")):
        raise InputError(f"Pooling prompt:{template}: expected a template with {{text}} and {{mask}}, each once.")
    mask_is_last = template.index("{text}") < template.index("{mask}")

    def function(output: EncoderOutput, tokens: Tokens) -> Pooled:
        if tokens.ids is None or tokens.mask_token is None:
            raise InputError("Pooling 'prompt' needs token ids and the id of the mask token.")
        here = (tokens.ids == tokens.mask_token) & (tokens.mask > 0)  # the sentence may hold a mask token of its own
        last = here.shape[1] - 1 - jnp.argmax(here[:, ::-1], axis=1)
        place = last if mask_is_last else jnp.argmax(here, axis=1)
        x = output.hidden_states[-1]
        return jnp.take_along_axis(x, place[:, None, None], axis=1)[:, 0].astype(jnp.float32)

    return Pooling(f"prompt:{parameters}" if parameters else "prompt", function, form=TextForm(template))


def idf(parameters: str) -> Pooling:
    """`idf:TABLE`: mean of the last layer, each token weighted by its inverse document frequency.

    `Encoder.fit_idf` makes the table and gives the name. A sentence of tokens that all weigh nothing, such as an
    empty one, gets the plain mean.
    """
    if not parameters:
        raise InputError(
            "Pooling 'idf' weighs tokens by how many sentences they occur in: call Encoder.fit_idf(sentences) and "
            "use the name it returns."
        )

    def function(output: EncoderOutput, tokens: Tokens) -> Pooled:
        if tokens.ids is None or parameters not in tokens.idf:
            raise InputError(f"Pooling 'idf:{parameters}' needs token ids and the table {parameters!r}.")
        weights = tokens.idf[parameters][tokens.ids] * tokens.mask
        weights = jnp.where(jnp.sum(weights, axis=1, keepdims=True) > 0, weights, tokens.mask.astype(jnp.float32))
        total = jnp.sum(output.hidden_states[-1].astype(jnp.float32) * weights[:, :, None], axis=1)
        return total / jnp.sum(weights, axis=1, keepdims=True)

    return Pooling(f"idf:{parameters}", function, idf=parameters)


PARAMETRIC: dict[str, Callable[[str], Pooling]] = {"layers": layers, "ditto": ditto, "prompt": prompt, "idf": idf}


@functools.lru_cache(maxsize=4096)
def resolve(name: str) -> Pooling:
    """The pooling of a name or alias.

    Args:
      name: A key of `POOLINGS` or `ALIASES`, or one of `PARAMETRIC` with its parameters.

    Raises:
      InputError: No such pooling, with the nearest names; or parameters that cannot be read.
    """
    kind, colon, parameters = ALIASES.get(name, name).partition(":")
    if kind in PARAMETRIC:
        return PARAMETRIC[kind](parameters)
    if kind not in POOLINGS or colon:
        raise unknown_name("pooling", name, [*POOLINGS, *PARAMETRIC])
    return _plain(kind)


def canonical(name: str) -> str:
    """The pooling's own name for a name or alias; `"auto"` is its own.

    Raises:
      InputError: No such pooling; the message gives the nearest names.
    """
    return name if name == AUTO else resolve(name).name


def pool(
    output: EncoderOutput,
    mask: Mask,
    names: Sequence[str] = ("first_last_avg",),
    *,
    ids: Int[Array, "batch length"] | None = None,
    mask_token: int | None = None,
    idf: Mapping[str, Float[Array, " vocab"]] | None = None,
) -> dict[str, Pooled]:
    """Applies poolings by name.

    Args:
      output: What the encoder returned.
      mask: 1 for tokens, 0 for padding.
      names: Names of poolings or aliases.
      ids: Token ids, for `prompt` and `idf`.
      mask_token: Id of the mask token, for `prompt`.
      idf: Weights of all token ids by the table's name, for `idf`.

    Returns:
      One float32 array a name asked for.
    """
    tokens = Tokens(mask, ids, mask_token, idf or {})
    return {name: resolve(name).function(output, tokens) for name in names}
