"""The forward pass in OpenVINO: the ONNX graph of encoder and pooling, at a CPU's fastest precision.

Batches run in parallel on one core each; on 2 cores this took 0.8 of the CPU time of one batch after the other on both
cores. Batches keep their own lengths and heights, because OpenVINO compiles no program per shape. Steps after the
pooling are a separate graph in float32, independent of the encoder's dtype. Codes are quantised on the host.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from flax import nnx
from jaxtyping import Float32

from jaxwhiten.encoding.batching import Batch, Layout
from jaxwhiten.encoding.forward import Heads, contents
from jaxwhiten.encoding.quantised import GRAPH, Quantised
from jaxwhiten.errors import InputError, JaxwhitenError, ModelError, optional, spelled, unknown_name
from jaxwhiten.head import Quantise, Step, at_pooling, write_steps
from jaxwhiten.models import TransformerEncoder
from jaxwhiten.models.graph import TOKENS, EncoderGraph, Graph
from jaxwhiten.runtime.hardware import check_process, cores
from jaxwhiten.runtime.telemetry import silenced
from jaxwhiten.text import TokenIds

DTYPES = ("float32", "bfloat16", "int8")
_PURPOSE = "The engine OpenVINO"
_EXTRA = "openvino"
_FEW_TOKENS = 64  # a single batch of up to this many tokens has its own program in float32
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


@functools.cache
def core() -> Any:
    """The OpenVINO core, one per process; MissingDependencyError without OpenVINO."""
    with silenced():
        return optional("openvino", _EXTRA, _PURPOSE).Core()


def has_bfloat16() -> bool:
    """Whether this CPU has instructions for bfloat16 products."""
    return "BF16" in core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


class _How(NamedTuple):
    """The use that a graph is compiled for: a single batch, on one stream; few tokens (`Graph.apart`)."""

    alone: bool = False
    few: bool = False


class _Compiled(NamedTuple):
    """A compiled graph and its idle requests; a request serves one thread at a time."""

    graph: Any
    idle: list[Any]

    def request(self) -> Any:
        """A request; the caller puts it back among the idle ones."""
        try:
            return self.idle.pop()
        except IndexError:
            return self.graph.create_infer_request()


class _Head(NamedTuple):
    """A head: the pooled output it reads, its steps after the pooling, and its code."""

    pooled: int
    tail: _Compiled | None
    code: Quantise | None


class _Program(NamedTuple):
    """A compiled graph and the heads that it serves."""

    compiled: _Compiled
    heads: dict[str, _Head]


_Handle = tuple[_Program, Any, dict[str, np.ndarray]]  # a program, its request, and the request's inputs


class OpenVINOEngine:
    """An encoder with float32 parameters in OpenVINO on this machine's CPU, see `Engine`; `dtype` is in `DTYPES`."""

    name: ClassVar[str] = "openvino"
    facts: ClassVar[Mapping[str, str]] = {"engine": "openvino"}
    devices, mesh, reduces = 1, None, False

    def __init__(
        self,
        model: TransformerEncoder,
        max_length: int,
        device: str | jax.Device | None = None,
        dtype: str = "float32",
        folder: Path | None = None,
    ):
        if getattr(device, "platform", device) not in (None, "cpu"):
            raise unknown_name("device of the engine openvino", device, ("cpu",))
        self.config, self.dtype, self.layout = model.config, dtype, Layout.on("cpu", 1, max_length)
        self.in_flight = cores() + 2
        self._module, self._max_length = model, max_length
        self._quantised = Quantised.read(folder, self.weights_digest(), max_length) if dtype == "int8" else None
        self._programs: dict[Any, Any] = {}
        self._latest: tuple[tuple[Any, ...], _Program | None] = ((), None)
        self._lock = threading.Lock()

    @staticmethod
    def checked_dtype(dtype: str | None) -> tuple[str, str]:
        """The dtype of matrix products, by default bfloat16 if the CPU supports it, and the dtype of the model."""
        if dtype is not None and dtype not in DTYPES:
            raise unknown_name("dtype", dtype, DTYPES)
        native = has_bfloat16()
        if dtype == "bfloat16" and not native:
            raise InputError(f"This CPU has no instructions for bfloat16: take {spelled('dtype', 'float32')}.")
        return dtype or ("bfloat16" if native else "float32"), "float32"

    @staticmethod
    def is_out_of_memory(error: Exception) -> bool:
        return isinstance(error, MemoryError) or any(s in str(error) for s in ("bad_alloc", "bad alloc", "allocate"))

    def place(self, tree: Any) -> Any:
        return tree  # parameters become constants of a graph

    def model(self) -> TransformerEncoder:
        return self._module

    def weights_digest(self) -> str:
        """SHA-256 of configuration and weights."""
        digest = hashlib.sha256()
        for part in contents(self.config, nnx.state(self._module)):
            digest.update(part)
        return digest.hexdigest()

    def contents(self) -> Iterator[bytes]:
        """Configuration and weights as bytes for hashing; in float32 equal to JAX's, because the vectors are equal."""
        yield from contents(self.config, nnx.state(self._module))
        if self.dtype != "float32":
            yield f"openvino {self.dtype}".encode()
        if self._quantised is not None:
            yield self._quantised.digest.encode()

    def save_beside(self, folder: Path) -> None:
        if self._quantised is not None:
            self._quantised.save(folder)

    def at_once(self, tokens: TokenIds, heads: Heads) -> dict[str, np.ndarray]:
        """Encodes one short sentence directly, without a plan and without padding."""
        if len(tokens.lengths) != 1 or not 0 < len(tokens.flat) <= _FEW_TOKENS:
            return {}
        check_process()
        ids = tokens.flat.astype(np.int64)[None]
        return self.fetch(self._started(ids, np.ones_like(ids), heads, alone=True))

    def start(self, batch: Batch, tokens: TokenIds, heads: Heads, *, alone: bool = False) -> _Handle:
        """Starts one batch at its own height and length; several may run in parallel."""
        ids, lengths = batch.trimmed(tokens.lengths).arrays(tokens, self.config.pad_token_id)
        mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
        return self._started(ids.astype(np.int64), mask, heads, alone)

    def _started(self, ids: np.ndarray, mask: np.ndarray, heads: Heads, alone: bool) -> _Handle:
        how = _How(alone, alone and self.dtype == "float32" and ids.size <= _FEW_TOKENS)
        wanted, (latest, program) = (*how, *heads, *heads.values()), self._latest
        if program is None or len(wanted) != len(latest) or not all(map(operator.is_, wanted, latest)):
            with self._lock:
                program = self._program(heads, how)
            self._latest = wanted, program
        request = program.compiled.request()
        inputs = {"input_ids": ids, "attention_mask": mask}
        (request.infer if alone else request.start_async)(inputs, share_inputs=True)
        return program, request, inputs  # kept until the request has ended, because inputs are not copied

    def fetch(self, handle: Any, *, to_host: bool = True) -> dict[str, Any]:
        program, request, _ = handle
        with self._naming():
            request.wait()
        pooled = [np.array(tensor.data) for tensor in request.output_tensors]
        program.compiled.idle.append(request)
        return {name: _finished(pooled[head.pooled], head) for name, head in program.heads.items()}

    def _program(self, heads: Heads, how: _How) -> _Program:
        """The program for heads; heads with the same pooling share its output."""
        key = how, *((name, _key(steps)) for name, steps in heads.items())
        if key not in self._programs:
            poolings: dict[Any, tuple[Step, ...]] = {}
            parts: dict[str, _Head] = {}
            for name, steps in heads.items():
                pooled, rest = at_pooling(steps)
                code = steps[-1] if isinstance(steps[-1], Quantise) else None
                rest = rest if code is None else rest[:-1]
                if how.few and not jax.tree.leaves(rest):  # no parameters, as unit length: saves a request
                    pooled, rest = (*pooled, *rest), ()
                poolings.setdefault(_key(pooled), pooled)
                number, width = list(poolings).index(_key(pooled)), self._width(pooled)
                tail = self._kept(("tail", _key(rest), width), _tail, rest, width) if rest else None
                parts[name] = _Head(number, tail, code)
            compiled = self._kept(("poolings", how, *poolings), self._encoder, list(poolings.values()), how)
            self._programs[key] = _Program(compiled, parts)
        program: _Program = self._programs[key]
        return program

    def _kept(self, key: Any, make: Callable[..., Any], *of: Any) -> Any:
        if key not in self._programs:
            self._programs[key] = make(*of)
        return self._programs[key]

    def _width(self, steps: tuple[Step, ...]) -> int:
        return _width(steps, int(self.config.hidden_size))

    def _encoder(self, poolings: list[tuple[Step, ...]], how: _How) -> _Compiled:
        """The compiled graph from tokens to pooled vectors."""
        model, hidden_states = self.uncompiled(poolings, how.few)
        with self._naming():
            if self._quantised is not None:
                model = self._quantised.put_into(model, hidden_states, core())
            return _Compiled(self.compile(model, how.alone), [])

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Turns errors of OpenVINO in the block into a ModelError that names the int8 weights, if there are any."""
        try:
            yield
        except Exception as error:
            if self._quantised is None or isinstance(error, JaxwhitenError) or self.is_out_of_memory(error):
                raise
            where, reason = self._quantised.folder / GRAPH, " ".join(str(error).split())[-200:]
            raise ModelError(f"{where}: not the int8 weights of this model ({reason}); make them again.") from error

    def uncompiled(self, poolings: list[tuple[Step, ...]], apart: bool = False) -> tuple[Any, list[str]]:
        """The float32 graph from tokens to pooled vectors before compilation, and the names of its hidden states."""
        graph = Graph(_PURPOSE, _EXTRA, apart)
        encoder = EncoderGraph(graph, self._module, self._max_length)
        outputs = {}
        for number, steps in enumerate(poolings):
            name = f"pooled.{number}"
            graph.op("Identity", write_steps(steps, encoder), output=name)
            outputs[name] = self._width(steps)
        finished = graph.finish(TOKENS, outputs, {}, check=False)
        return core().read_model(finished.SerializeToString()), encoder.hidden_states

    def compile(self, model: Any, alone: bool = False) -> Any:
        """A graph compiled at this engine's precision, with one stream per core, or one stream for a single batch."""
        dtype = "float32" if self.dtype == "int8" and not has_bfloat16() else self.dtype
        hints = {"NUM_STREAMS": 1 if alone else cores(), "INFERENCE_NUM_THREADS": cores()}
        return core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": _PRECISIONS.get(dtype, "bf16"), **hints})


def _width(steps: tuple[Step, ...], width: int) -> int:
    """The width of vectors after steps."""
    return functools.reduce(lambda width, step: step.output_width(width), steps, width)


def _tail(steps: tuple[Step, ...], width: int) -> _Compiled:
    """The compiled steps on vectors of the given width."""
    graph = Graph(_PURPOSE, _EXTRA)
    x: Any = "vectors"
    for step in steps:
        x = step.to_onnx(graph, x)
    graph.op("Identity", x, output="mapped")
    finished = graph.finish({"vectors": width}, {"mapped": _width(steps, width)}, {}, check=False)
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    return _Compiled(core().compile_model(core().read_model(finished.SerializeToString()), "CPU", hints), [])


def _finished(x: Float32[np.ndarray, "batch d"], head: _Head) -> np.ndarray:
    if head.tail is not None:
        request = head.tail.request()
        x = np.array(request.infer({"vectors": x}, share_inputs=True, share_outputs=True)[0])
        head.tail.idle.append(request)
    return x if head.code is None else np.asarray(head.code(x))


def _key(steps: tuple[Step, ...]) -> Any:
    """A key that is equal for equal steps."""
    leaves, structure = jax.tree.flatten(steps)
    digest = hashlib.sha256()
    for leaf in leaves:
        digest.update(repr(np.shape(leaf)).encode() + np.ascontiguousarray(leaf).tobytes())
    return structure, digest.hexdigest()
