"""An encoder as an ONNX graph, written operator by operator from the model's configuration.

The graph is not traced. It follows `models/layers.py`, so that it holds for every batch size and length and needs no
converter. Its inputs are `input_ids` and `attention_mask` (int64 [batch, length], padding on the right).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flax import nnx
from numpy.typing import DTypeLike

from jaxwhiten._version import __version__
from jaxwhiten.errors import InputError, optional, unknown_name
from jaxwhiten.models.config import Attention
from jaxwhiten.models.layers import Experts, FeedForward, Norm, RootNorm, SelfAttention, TransformerLayer
from jaxwhiten.models.positions import pair_distances, relative_buckets, rotary, visible
from jaxwhiten.models.transformer import TransformerEncoder
from jaxwhiten.types import AnyArray

_OPSET = 17
_IR_VERSION = 8
_LOWEST = np.float32(np.finfo(np.float32).min)
_MAX_BYTES = 2_000_000_000  # limit of one protobuf message
TOKENS = {"input_ids": "length", "attention_mask": "length"}  # a graph's inputs, and their second dimension


class Graph:
    """The nodes and constants of a graph. Values are referred to by their names."""

    def __init__(self, purpose: str = "Exporting to ONNX", extra: str = "cpu"):
        self._onnx = optional("onnx", extra, purpose)
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self.nbytes = 0

    def constant(self, name: str, value: AnyArray) -> str:
        """Adds an array under a name, unless the name is already taken, and returns the name."""
        if name not in self._constants:
            array = np.ascontiguousarray(value)
            self._constants[name] = self._onnx.numpy_helper.from_array(array.reshape(np.shape(value)), name)
            self.nbytes += array.nbytes
        return name

    def number(self, value: float) -> str:
        return self.constant(f"number.{value!r}", np.float32(value))

    def integers(self, *values: int) -> str:
        return self.constant(f"integers.{'.'.join(map(str, values))}", np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """One operator with one output."""
        output = output or f"{kind}.{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def activation(self, name: str, x: str) -> str:
        """An activation, named as in a `config.json` or as its class in torch.nn."""
        if name.lower() not in _ACTIVATIONS:
            raise unknown_name("activation of an ONNX graph", name, _ACTIVATIONS)
        return _ACTIVATIONS[name.lower()](self, x)

    def finish(
        self,
        inputs: Mapping[str, int | str],
        outputs: Mapping[str, int],
        facts: Mapping[str, str],
        dtype: DTypeLike = np.float32,
        check: bool = True,
    ) -> Any:
        """The finished model, as an object of the package onnx, with `facts` as its properties.

        `inputs` have a name for the second dimension of token ids and masks (int64), a number for vectors; `outputs`
        have the widths of vectors of `dtype`. `check` takes as long as building; an engine that reads it checks too.
        """
        if self.nbytes > _MAX_BYTES:
            raise InputError(f"{self.nbytes / 1e9:.1f} GB of weights are more than one ONNX file can hold.")
        helper = self._onnx.helper

        def described(name: str, size: int | str, of: Any) -> Any:
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(of))
            return helper.make_tensor_value_info(name, kind, ["batch", size])

        graph_inputs = [
            described(name, n, np.int64 if isinstance(n, str) else np.float32) for name, n in inputs.items()
        ]
        graph_outputs = [described(name, size, dtype) for name, size in outputs.items()]
        graph = helper.make_graph(
            self._nodes, "sentence_encoder", graph_inputs, graph_outputs, list(self._constants.values())
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="jaxwhiten",
            producer_version=__version__,
        )
        helper.set_model_props(model, facts)
        if check:
            self._onnx.checker.check_model(model)
        return model


def _gelu(graph: Graph, x: str) -> str:
    erf = graph.op("Erf", graph.op("Mul", x, graph.number(math.sqrt(0.5))))
    return graph.op("Mul", graph.op("Mul", x, graph.number(0.5)), graph.op("Add", erf, graph.number(1.0)))


def _gelu_tanh(graph: Graph, x: str) -> str:
    cube = graph.op("Mul", graph.op("Mul", graph.op("Mul", x, x), x), graph.number(0.044715))
    inner = graph.op("Mul", graph.op("Add", x, cube), graph.number(math.sqrt(2 / math.pi)))
    tanh = graph.op("Add", graph.op("Tanh", inner), graph.number(1.0))
    return graph.op("Mul", graph.op("Mul", x, graph.number(0.5)), tanh)


def _silu(graph: Graph, x: str) -> str:
    return graph.op("Mul", x, graph.op("Sigmoid", x))


_ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "gelu": _gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "identity": lambda graph, x: x,
    "relu": lambda graph, x: graph.op("Relu", x),
    "sigmoid": lambda graph, x: graph.op("Sigmoid", x),
    "silu": _silu,
    "swish": _silu,
    "tanh": lambda graph, x: graph.op("Tanh", x),
}


def _array(parameter: AnyArray) -> np.ndarray:
    return np.asarray(parameter[...], np.float32)


_Context = tuple[str, str | None, tuple[str, ...]]  # mask, bias and rotary tables as names, see `layers.Context`


class EncoderGraph:
    """An encoder's part of a graph: the names of the values that heads read. Values for a few heads are methods.

    `longest` is the maximum input length in tokens.

    Attributes:
      hidden_states: All hidden states, the embedding output first.
    """

    def __init__(self, graph: Graph, model: TransformerEncoder, longest: int):
        self.graph = graph
        self.model = model
        self._longest = longest
        self._names = {id(part): ".".join(map(str, path)) for path, part in nnx.iter_modules(model)}
        self._length = graph.op("Shape", "input_ids", start=1, end=2)
        x = self._embedded()
        seen = graph.op("Unsqueeze", graph.op("Cast", "attention_mask", to=9), graph.integers(1, 2))
        contexts = {kind: self._context(seen, kind) for kind in dict.fromkeys(model.config.attention)}
        self.hidden_states = [x]
        for layer, kind in model.stack():
            x = self._layer(x, layer, contexts[kind])
            self.hidden_states.append(x)
        self.hidden_states[-1] = self._norm(x, model.final_norm)

    def pooler(self) -> str:
        """BERT's pooler output, for a model that has a pooler."""
        first = self.graph.constant("first", np.int64(0))
        x = self.graph.op("Gather", self.hidden_states[-1], first, axis=1)
        return self.graph.op("Tanh", self._linear(x, self.model.pooler))

    def _linear(self, x: str, layer: nnx.Linear | None) -> str:
        if layer is None:
            return x
        y = self.graph.op("MatMul", x, self._constant(layer, "weight", layer.kernel))
        return y if layer.bias is None else self.graph.op("Add", y, self._constant(layer, "bias", layer.bias))

    def _constant(self, part: nnx.Module, name: str, value: AnyArray) -> str:
        return self.graph.constant(f"{self._names[id(part)]}.{name}", _array(value))

    def _norm(self, x: str, norm: Norm | None) -> str:
        if norm is None:
            return x
        if isinstance(norm, RootNorm):
            op = self.graph.op
            square = op("ReduceMean", op("Mul", x, x), axes=[-1], keepdims=1)
            x = op("Div", x, op("Sqrt", op("Add", square, self.graph.number(norm.epsilon))))
            return op("Mul", x, self._constant(norm, "weight", norm.offset + _array(norm.scale)))
        parameters = {"weight": norm.scale, "bias": norm.bias}
        inputs = [self._constant(norm, name, value) for name, value in parameters.items() if value is not None]
        return self.graph.op("LayerNormalization", x, *inputs, axis=-1, epsilon=float(norm.epsilon))

    def _table(self, name: str, table: AnyArray, *axes: int) -> str:
        """A constant for the longest input, cut to the current length along the axes."""
        cut = self.graph.constant(name, np.asarray(table))
        for axis in axes:
            cut = self.graph.op("Slice", cut, self.graph.integers(0), self._length, self.graph.integers(axis))
        return cut

    def _embedded(self) -> str:
        graph = self.graph
        parts = self.model.embeddings
        first = self.model.config.position_offset
        x = graph.op("Gather", graph.constant("embeddings.word", _array(parts.word.embedding)), "input_ids")
        if parts.scale != 1:
            x = graph.op("Mul", x, graph.number(parts.scale))
        if parts.position is not None:
            rows = _array(parts.position.embedding)[: first + self._longest]
            x = graph.op("Add", x, self._counted(rows, first) if first else self._table("embeddings.position", rows, 0))
        if parts.token_type is not None:
            x = graph.op("Add", x, graph.constant("embeddings.token_type", _array(parts.token_type.embedding)[0]))
        return self._linear(self._norm(x, parts.norm), parts.projection)

    def _counted(self, rows: np.ndarray, offset: int) -> str:
        """Position embeddings of `positions.embedding_rows`."""
        op = self.graph.op
        pad = self.graph.constant("padding", np.int64(offset - 1))
        counted = op("Cast", op("Not", op("Equal", "input_ids", pad)), to=7)  # int64
        count = op("CumSum", counted, self.graph.constant("along", np.int64(1)))
        place = op("Add", op("Mul", count, counted), pad)
        return op("Gather", self.graph.constant("embeddings.position", rows), place)

    def _context(self, seen: str, kind: Attention) -> _Context:
        longest, op, config = self._longest, self.graph.op, self.model.config
        bias = None
        if (near := visible(longest, kind.window, kind.causal)) is not None:
            seen = op("And", seen, self._table(f"visible.{kind.window}.{kind.causal}", near, 0, 1))
        if self.model.relative_bias is not None:
            buckets = relative_buckets(pair_distances(longest), config.relative_buckets, config.relative_distance)
            places = op("Cast", self._table("relative_buckets", buckets.astype(np.uint16), 0, 1), to=7)  # int64
            rows = self.graph.constant("relative_bias", _array(self.model.relative_bias.embedding))
            bias = op("Transpose", op("Gather", rows, places), perm=[2, 0, 1])
        turns = rotary(longest, config.head_size, kind.rotary_theta, kind.scaling)
        if turns is None:
            return seen, bias, ()
        tables = [turns.cos, turns.sin, *([] if turns.growth is None else [turns.growth[:, None]])]
        of = f"rotary.{kind.rotary_theta}.{kind.scaling}"
        return seen, bias, tuple(self._table(f"{of}.{name}", x, 0) for name, x in enumerate(tables))

    def _layer(self, x: str, layer: TransformerLayer, context: _Context) -> str:
        return layer.composed(
            x,
            lambda y: self._attention(y, layer.attention, context),
            lambda y: self._feed_forward(y, layer.feed_forward),
            norm=self._norm,
            add=lambda y, change: self.graph.op("Add", y, change),
        )

    def _attention(self, x: str, part: SelfAttention, context: _Context) -> str:
        graph = self.graph
        op = self.graph.op
        count = part.config.num_heads
        width = part.head_size

        def heads(layer: nnx.Linear, norm: Norm | None = None) -> str:
            y = op("Reshape", self._linear(x, layer), graph.integers(0, 0, -1, width))
            return op("Transpose", self._norm(y, norm), perm=[0, 2, 1, 3])

        def shaped(y: str, heads: int, last: int) -> str:
            """Reshapes so that heads that share keys and values make one product, and back; 0 keeps a dimension."""
            if part.kv_heads == count:
                return y
            return op("Reshape", y, graph.integers(0, heads, -1, last))

        query = heads(part.query, part.query_norm)
        key = heads(part.key, part.key_norm)
        value = heads(part.value)
        mask, bias, rotary = context
        if rotary:
            cos, sin, *growth = rotary
            query = self._turned(query, width, cos, sin)
            key = self._turned(key, width, cos, sin)
            if growth:
                query = op("Mul", query, growth[0])
        scores = op("MatMul", shaped(query, part.kv_heads, width), op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = op("Div", shaped(scores, count, 0), graph.number(math.sqrt(part.query_scalar)))
        if bias is not None:
            scores = op("Add", scores, bias)
        scores = op("Where", mask, scores, graph.constant("lowest", _LOWEST))
        attention_map = op("Softmax", scores, axis=-1)
        mixed = shaped(op("MatMul", shaped(attention_map, part.kv_heads, 0), value), count, width)
        mixed = op("Reshape", op("Transpose", mixed, perm=[0, 2, 1, 3]), graph.integers(0, 0, count * width))
        return self._linear(mixed, part.output)

    def _turned(self, x: str, width: int, cos: str, sin: str) -> str:
        """Queries or keys, rotated by the angles of their positions."""
        op = self.graph.op
        half = self.graph.integers(width // 2)
        first = op("Slice", x, self.graph.integers(0), half, self.graph.integers(3))
        second = op("Slice", x, half, self.graph.integers(width), self.graph.integers(3))
        difference = op("Sub", op("Mul", first, cos), op("Mul", second, sin))
        right = op("Add", op("Mul", second, cos), op("Mul", first, sin))
        return op("Concat", difference, right, axis=-1)

    def _feed_forward(self, x: str, part: FeedForward | Experts) -> str:
        if isinstance(part, Experts):
            raise InputError(f"{self.model.config.model_type}: no ONNX graph of a mixture of experts; run it in JAX.")
        inner = self.graph.activation(self.model.config.hidden_act, self._linear(x, part.up))
        if part.gate is not None:
            inner = self.graph.op("Mul", inner, self._linear(x, part.gate))
        return self._linear(inner, part.down)
