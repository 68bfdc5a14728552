"""int8 weights of an encoder for OpenVINO, quantised by NNCF with SmoothQuant.

It needs no labels. Ranges are measured on given sentences. Products whose quantisation lowers the cosine to the float32
vectors of held-out sentences too much stay in the CPU's float precision.

References:
  Xiao et al. 2023, "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models",
  section 4.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxwhiten import io
from jaxwhiten.arrays import normalize
from jaxwhiten.datasets import load_sts
from jaxwhiten.datasets.protocol import SAMPLE
from jaxwhiten.engines.openvino import OpenVINOEngine, core, silenced
from jaxwhiten.engines.quantised import Quantised, hidden_state, outputs_by_name
from jaxwhiten.errors import Bounds, InputError, optional
from jaxwhiten.head import Head, at_pooling
from jaxwhiten.models import EncoderConfig
from jaxwhiten.shapes import Float32
from jaxwhiten.text import BulkTokenizer, Texts, TokenIds, as_texts, text_fingerprint

if TYPE_CHECKING:
    from jaxwhiten.models import TransformerEncoder

COSINE = 0.998  # mean cosine of int8 and float32 vectors of held-out sentences
_FEWEST = 16  # sentences
_MOST = 512  # sentences used, a quarter of them held out
_GENERAL = 128  # sentences of this package's sample, so that ranges from narrow text, such as captions, hold elsewhere
_ROWS = 8  # per batch
_SMOOTH = "smooth_quant"  # in the names of SmoothQuant's scalings of a product's input
_LONGEST = 512  # tokens that the weights are made for, if the encoder's own limit is lower


class Int8Report(NamedTuple):
    """How int8 weights were made."""

    folder: Path  # the model folder with these weights
    kept: tuple[str, ...]  # groups of weights that were not quantised, the most harmful first
    products: int  # the number of groups; a group is the products with weights that share an input
    cosine: float  # the mean between int8 and float32 vectors of held-out sentences


@runtime_checkable
class Quantizable(Protocol):
    """What an `Encoder` tells about its model, and how it is saved."""

    @property
    def config(self) -> EncoderConfig:
        """The configuration of the model."""

    @property
    def max_length(self) -> int:
        """The tokens of a text."""

    @property
    def tokenizer(self) -> BulkTokenizer:
        """The tokenizer of the model."""

    @property
    def head(self) -> Head:
        """The steps after the hidden states."""

    def model(self) -> TransformerEncoder:
        """The Flax module."""

    def check_folder(self, folder: str | Path) -> None:
        """Raises InputError for a folder that `save` may not write to."""

    def save(self, folder: str | Path, *, card: str | None = None, dtype: str | None = None) -> Path:
        """Writes the model folder."""


def save_int8(folder: str | Path, encoder: Quantizable, sentences: Texts, *, cosine: float = COSINE) -> Int8Report:
    """Writes a model folder with int8 weights, for `Encoder.from_pretrained(folder, engine="openvino", dtype="int8")`.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> report = save_int8("int8", encoder, load_sts("sts_sample").splits["test"].sentence1)  # doctest: +SKIP
    >>> Encoder.from_pretrained("int8", engine="openvino", dtype="int8")  # doctest: +SKIP

    Args:
      folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole.
      encoder: A `jaxwhiten.Encoder`.
      sentences: At least 16, similar to those to be encoded. 382 of them, evenly spaced, are used together with 130
        general sentences that ship with the package; a quarter of all is held out.
      cosine: The mean cosine to the float32 vectors of held-out sentences that must be reached.

    Raises:
      InputError: There are too few sentences, an item is not a string, or the folder is the model's own.
      MissingDependencyError: OpenVINO or NNCF is not installed.
    """
    Bounds(0.0, 1.0, above=True).check("cosine", cosine)
    texts = list(dict.fromkeys(as_texts(sentences)))
    if len(texts) < _FEWEST:
        raise InputError(f"{len(texts)} different sentences for calibration: pass at least {_FEWEST}.")
    sample = load_sts(SAMPLE).splits["test"]
    general = sample.sentence1[:: len(sample) // _GENERAL]
    texts = [texts[i] for i in np.linspace(0, len(texts) - 1, min(_MOST - len(general), len(texts)), dtype=int)]
    texts = list(dict.fromkeys(texts + general))
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]
    encoder.check_folder(folder)
    work = _Work(encoder, texts)
    layers, reached = work.choose(cosine)
    graph = work.backbone(work.named(layers))
    facts = {"weights": work.forward.weights_digest(), "kept": layers, "cosine": reached}
    facts |= {"sentences": len(texts), "text": text_fingerprint(texts), "longest": work.longest}
    with io.whole_folder(folder, RuntimeError) as whole:
        encoder.save(whole, dtype="float32")
        Quantised.write(whole, graph, facts)
    return Int8Report(Path(folder), tuple(layers), len(work.groups), reached)


class _Work:
    """The quantisation of one encoder; `groups` are products with weights that share an input, by the first weight."""

    def __init__(self, encoder: Quantizable, texts: list[str]):
        core()  # before NNCF, which imports OpenVINO, so that a missing package is reported properly
        with silenced():
            self._nncf = optional("nncf", "openvino", "Quantizing to int8")
        logging.getLogger("nncf").setLevel(logging.ERROR)
        self.longest = min(encoder.config.longest_input, max(encoder.max_length, _LONGEST))
        self.forward = OpenVINOEngine(encoder.model(), self.longest)
        self._graph, self._states = self.forward.uncompiled([at_pooling(encoder.head.steps)[0]])
        tokens = encoder.tokenizer(texts, encoder.head.form)
        pad = encoder.config.pad_token_id
        batches = list(_batches(tokens, pad))
        chosen = np.random.default_rng(1).permutation(len(batches))
        quarter = max(len(batches) // 4, 1)
        self._held_out = [batches[i] for i in chosen[:quarter]]
        self._ranges = [batches[i] for i in chosen[quarter:]] or self._held_out
        self._float = self._vectors(self._graph)
        products = [op for op in self._graph.get_ordered_ops() if op.get_type_name() == "MatMul"]
        self._weights = {op.get_friendly_name(): op.input_value(1).get_node() for op in products}
        by_input: dict[str, list[str]] = {}
        self._without_weights = []
        for op in products:
            name = op.get_friendly_name()
            if self._weights[name].get_type_name() == "Constant":
                by_input.setdefault(op.input_value(0).get_node().get_friendly_name(), []).append(name)
            else:
                self._without_weights.append(name)
        firsts = (self._weights[names[0]].get_friendly_name().removesuffix(".weight") for names in by_input.values())
        labels = [f"{number}.{label}" for number, label in enumerate(firsts)]
        self.groups = dict(zip(labels, by_input.values(), strict=True))

    def choose(self, cosine: float) -> tuple[list[str], float]:
        """The groups not to quantise, the most harmful first, and the mean cosine reached."""
        full = self.quantise([])
        chosen = list[str]()
        reached = self._cosine(full)
        if reached >= cosine:
            return chosen, reached
        gains = {group: self._cosine(self._restored(full, names)) for group, names in self.groups.items()}
        for group in sorted(gains, key=lambda group: -gains[group]):
            chosen.append(group)
            reached = self._cosine(self._restored(full, self.named(chosen)))
            if reached >= cosine:
                break
        return chosen, reached

    def named(self, groups: list[str]) -> list[str]:
        """The products of several groups."""
        return [name for group in groups for name in self.groups[group]]

    def quantise(self, kept: list[str]) -> Any:
        """The int8 graph without the products in `kept`. Attention is not quantised, because OpenVINO fuses it."""
        nncf = self._nncf
        return nncf.quantize(
            self._graph.clone(),
            nncf.Dataset(self._ranges),
            model_type=nncf.ModelType.TRANSFORMER,
            preset=nncf.QuantizationPreset.MIXED,
            target_device=nncf.TargetDevice.CPU,
            subset_size=len(self._ranges),
            ignored_scope=nncf.IgnoredScope(names=[*self._without_weights, *kept]),
        )

    def _restored(self, graph: Any, products: list[str]) -> Any:
        """A quantised graph with these products in float again: the result of `quantise`, without quantising again."""
        import openvino

        graph = graph.clone()
        for op in graph.get_ordered_ops():
            if op.get_friendly_name() not in products:
                continue
            source = op.input_value(0)
            while (node := source.get_node()).get_type_name() == "FakeQuantize" or _SMOOTH in node.get_friendly_name():
                source = node.input_value(0)
            weight = openvino.opset13.constant(self._weights[op.get_friendly_name()].data)
            op.input(0).replace_source_output(source)
            op.input(1).replace_source_output(weight.output(0))
        return graph

    def backbone(self, kept: list[str]) -> Any:
        """The quantised graph with all hidden states as outputs."""
        import openvino

        graph = self.quantise(kept)
        named = outputs_by_name(graph)
        results = []
        for number, name in enumerate(self._states):
            result = openvino.opset13.result(named[name])
            result.output(0).get_tensor().set_names({hidden_state(number)})
            results.append(result)
        return openvino.Model(results, graph.get_parameters())

    def _vectors(self, graph: Any) -> Float32[np.ndarray, "n d"]:
        compiled = self.forward.compile(graph)
        return normalize(np.concatenate([np.array(compiled(batch)[0]) for batch in self._held_out]))

    def _cosine(self, graph: Any) -> float:
        return float((self._vectors(graph) * self._float).sum(axis=1).mean())


def _batches(tokens: TokenIds, pad: int) -> Iterator[dict[str, np.ndarray]]:
    """Inputs of a graph, with sentences of similar length in one batch."""
    order = np.argsort(tokens.lengths, kind="stable")
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        length = int(tokens.lengths[rows].max())
        ids = tokens.padded(rows, len(rows), length, pad).astype(np.int64)
        mask = (np.arange(length) < tokens.lengths[rows][:, None]).astype(np.int64)
        yield {"input_ids": ids, "attention_mask": mask}
