"""An encoder as an ONNX graph, written operator by operator from the model's configuration.

Nothing is traced: the graph follows `models/layers.py`, so that it holds for every batch size and length, and needs no
converter. Its inputs are `input_ids` and `attention_mask` (int64 [batch, length], padding on the right).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import nnx

from jaxwhiten._version import __version__
from jaxwhiten.errors import missing_dependency, unknown_name
from jaxwhiten.models.positions import neighbours, relative_buckets, rotary
from jaxwhiten.models.transformer import TransformerEncoder

_OPSET = 17
_IR_VERSION = 8
_LOWEST = np.float32(np.finfo(np.float32).min)
MAX_BYTES = 2_000_000_000  # of one protobuf message
TOKENS = {"input_ids": "length", "attention_mask": "length"}  # a graph's inputs, and their second dimension


class Graph:
    """Nodes and constants in the making. Values are known by their names.

    Args:
      purpose: What the package onnx is needed for.
      extra: What it is installed with.

    Raises:
      MissingDependencyError: It is not installed.
    """

    def __init__(self, purpose: str = "Exporting to ONNX", extra: str = "export"):
        try:
            import onnx
        except ImportError as error:
            raise missing_dependency("onnx", extra, purpose) from error
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self.nbytes = 0

    def constant(self, name: str, value: Any) -> str:
        """An array by name; one that is asked for again is not written again."""
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
        """An activation by its name in a `config.json`, or its class in torch.nn.

        Raises:
          InputError: There are no operators for it.
        """
        if name not in _ACTIVATIONS:
            raise unknown_name("activation of an ONNX graph", name, _ACTIVATIONS)
        return _ACTIVATIONS[name](self, x)

    def finish(
        self,
        inputs: Mapping[str, int | str],
        outputs: Mapping[str, int],
        facts: Mapping[str, str],
        dtype: Any = np.float32,
    ) -> Any:
        """The model, as the package onnx keeps it.

        Args:
          inputs: The second dimension of each: a name for token ids and masks (int64), a number for float32 vectors.
          outputs: Widths of the vectors.
          facts: Properties of the model.
          dtype: Of the outputs.
        """
        helper = self._onnx.helper

        def described(name: str, size: int | str, of: Any) -> Any:
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(of))
            return helper.make_tensor_value_info(name, kind, ["batch", size])

        taken = [
            described(name, size, np.int64 if isinstance(size, str) else np.float32) for name, size in inputs.items()
        ]
        given = [described(name, size, dtype) for name, size in outputs.items()]
        graph = helper.make_graph(self._nodes, "sentence_encoder", taken, given, list(self._constants.values()))
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="jaxwhiten",
            producer_version=__version__,
        )
        helper.set_model_props(model, facts)
        self._onnx.checker.check_model(model)
        return model


@dataclasses.dataclass
class EncoderGraph:
    """An encoder's part of a graph: names of what heads read. What no head asks for is not written.

    Attributes:
      graph: The graph.
      model: The encoder.
      hidden_states: All of them, the embedding output first.
      attention_maps: Of each layer, [batch, heads, length, length].
    """

    graph: Graph
    model: TransformerEncoder
    hidden_states: list[str]
    attention_maps: list[str]

    def pooler(self) -> str:
        """BERT's pooler output, of a model that has one."""
        assert self.model.pooler is not None
        first = self.graph.constant("first", np.int64(0))
        x = self.graph.op("Gather", self.hidden_states[-1], first, axis=1)
        return self.graph.op("Tanh", _linear(self.graph, x, "pooler", self.model.pooler))

    def attention_diagonal(self, layer: int, head: int) -> str:
        """Each token's attention to itself in one head, [batch, length]."""
        graph = self.graph
        of_head = graph.op("Gather", self.attention_maps[layer], graph.constant(f"head.{head}", np.int64(head)), axis=1)
        length = graph.op("Shape", "input_ids", start=1, end=2)
        positions = graph.op("Range", *(graph.op("Squeeze", x) for x in (graph.integers(0), length, graph.integers(1))))
        columns = graph.op("Unsqueeze", positions, graph.integers(0))
        own = graph.op("Equal", graph.op("Unsqueeze", positions, graph.integers(1)), columns)
        return graph.op(
            "ReduceSum", graph.op("Mul", of_head, graph.op("Cast", own, to=1)), graph.integers(2), keepdims=0
        )


def _array(parameter: Any) -> np.ndarray:
    return np.asarray(parameter[...], np.float32)


def _linear(graph: Graph, x: str, name: str, layer: nnx.Linear) -> str:
    y = graph.op("MatMul", x, graph.constant(f"{name}.weight", _array(layer.kernel)))
    if layer.bias is None:
        return y
    return graph.op("Add", y, graph.constant(f"{name}.bias", _array(layer.bias)))


def _layer_norm(graph: Graph, x: str, name: str, norm: nnx.LayerNorm | None) -> str:
    if norm is None:
        return x
    inputs = [x, graph.constant(f"{name}.weight", _array(norm.scale))]
    if norm.bias is not None:
        inputs.append(graph.constant(f"{name}.bias", _array(norm.bias)))
    return graph.op("LayerNormalization", *inputs, axis=-1, epsilon=float(norm.epsilon))


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


# Names of config.json, and those of torch's modules in Dense layers.
_ACTIVATIONS: dict[str, Any] = {
    "gelu": _gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": lambda graph, x: graph.op("Relu", x),
    "silu": _silu,
    "swish": _silu,
    "Identity": lambda graph, x: x,
    "Tanh": lambda graph, x: graph.op("Tanh", x),
    "ReLU": lambda graph, x: graph.op("Relu", x),
    "GELU": _gelu,
    "SiLU": _silu,
    "Sigmoid": lambda graph, x: graph.op("Sigmoid", x),
}


def _cut(graph: Graph, table: str, length: str, axes: tuple[int, ...]) -> str:
    """The first `length` entries of a constant along each axis."""
    for axis in axes:
        table = graph.op("Slice", table, graph.integers(0), length, graph.integers(axis))
    return table


def encoder_graph(graph: Graph, model: TransformerEncoder, longest: int) -> EncoderGraph:
    """Adds an encoder to a graph, for inputs of up to `longest` tokens."""
    config, parts = model.config, model.embeddings
    length = graph.op("Shape", "input_ids", start=1, end=2)
    x = graph.op("Gather", graph.constant("embeddings.word", _array(parts.word.embedding)), "input_ids")
    if parts.position is not None:
        rows = _array(parts.position.embedding)[config.position_offset :][:longest]
        x = graph.op("Add", x, _cut(graph, graph.constant("embeddings.position", rows), length, (0,)))
    if parts.token_type is not None:
        x = graph.op("Add", x, graph.constant("embeddings.token_type", _array(parts.token_type.embedding)[0]))
    x = _layer_norm(graph, x, "embeddings.norm", parts.norm)
    if parts.projection is not None:
        x = _linear(graph, x, "embeddings.projection", parts.projection)

    seen = graph.op("Cast", "attention_mask", to=9)  # bool
    seen = graph.op("Unsqueeze", seen, graph.integers(1, 2))
    near = None
    if config.local_layers:
        window = graph.constant("neighbours", np.asarray(neighbours(longest, config.local_window)))
        near = graph.op("And", seen, _cut(graph, window, length, (0, 1)))
    bias = None
    if model.relative_bias is not None:
        table = _array(model.relative_bias.embedding)[relative_buckets(longest, config.relative_buckets)]
        bias = _cut(graph, graph.constant("relative_bias", table.transpose(2, 0, 1)[None]), length, (2, 3))

    def turns(theta: float) -> tuple[str, str] | None:
        if not theta:
            return None
        angles = rotary(longest, config.head_size, theta)
        tables = (("cos", angles.cos), ("sin", angles.sin))
        constants = (graph.constant(f"rotary.{kind}.{theta!r}", np.asarray(table)) for kind, table in tables)
        cos, sin = (_cut(graph, constant, length, (0,)) for constant in constants)
        return cos, sin

    everywhere = turns(config.rotary_theta)
    nearby = turns(config.local_rotary_theta) if config.local_layers else None
    states, maps = [x], []
    for index in range(config.num_layers):
        number = index * len(model.layers) // config.num_layers
        local = index in config.local_layers
        mask, angles = (near or seen, nearby) if local else (seen, everywhere)
        x, attention_map = _layer(graph, x, f"layers.{number}", model, number, (mask, bias, angles))
        states.append(x)
        maps.append(attention_map)
    states[-1] = _layer_norm(graph, x, "final_norm", model.final_norm)
    return EncoderGraph(graph, model, states, maps)


_Context = tuple[str, str | None, tuple[str, str] | None]


def _layer(
    graph: Graph, x: str, name: str, model: TransformerEncoder, number: int, context: _Context
) -> tuple[str, str]:
    """The layer's output and its attention map."""
    layer = model.layers[number]

    def normed(y: str, kind: str) -> str:
        return _layer_norm(graph, y, f"{name}.{kind}_norm", getattr(layer, f"{kind}_norm"))

    inputs = normed(x, "attention") if layer.pre_norm else x
    attended, attention_map = _attention(graph, inputs, f"{name}.attention", model, number, context)
    x = graph.op("Add", x, attended)
    x, inner = (x, normed(x, "feed_forward")) if layer.pre_norm else (normed(x, "attention"),) * 2
    x = graph.op("Add", x, _feed_forward(graph, inner, f"{name}.feed_forward", model, number))
    return x if layer.pre_norm else normed(x, "feed_forward"), attention_map


def _attention(
    graph: Graph, x: str, name: str, model: TransformerEncoder, number: int, context: _Context
) -> tuple[str, str]:
    config, part = model.config, model.layers[number].attention
    mask, bias, angles = context
    shape = graph.integers(0, 0, config.num_heads, config.head_size)

    def heads(kind: str) -> str:
        y = graph.op("Reshape", _linear(graph, x, f"{name}.{kind}", getattr(part, kind)), shape)
        y = graph.op("Transpose", y, perm=[0, 2, 1, 3])
        return y if angles is None or kind == "value" else _turned(graph, y, config.head_size, *angles)

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.op("Div", scores, graph.number(math.sqrt(config.head_size)))
    if bias is not None:
        scores = graph.op("Add", scores, bias)
    scores = graph.op("Where", mask, scores, graph.constant("lowest", _LOWEST))
    attention_map = graph.op("Softmax", scores, axis=-1)
    mixed = graph.op("MatMul", attention_map, value)
    mixed = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = graph.op("Reshape", mixed, graph.integers(0, 0, config.hidden_size))
    return _linear(graph, mixed, f"{name}.output", part.output), attention_map


def _turned(graph: Graph, x: str, size: int, cos: str, sin: str) -> str:
    """Queries or keys, turned by their positions' angles."""
    half, whole, axis = graph.integers(size // 2), graph.integers(size), graph.integers(3)
    first = graph.op("Slice", x, graph.integers(0), half, axis)
    second = graph.op("Slice", x, half, whole, axis)
    left = graph.op("Sub", graph.op("Mul", first, cos), graph.op("Mul", second, sin))
    right = graph.op("Add", graph.op("Mul", second, cos), graph.op("Mul", first, sin))
    return graph.op("Concat", left, right, axis=-1)


def _feed_forward(graph: Graph, x: str, name: str, model: TransformerEncoder, number: int) -> str:
    part = model.layers[number].feed_forward
    inner = graph.activation(model.config.hidden_act, _linear(graph, x, f"{name}.up", part.up))
    if part.gate is not None:
        inner = graph.op("Mul", inner, _linear(graph, x, f"{name}.gate", part.gate))
    return _linear(graph, inner, f"{name}.down", part.down)
