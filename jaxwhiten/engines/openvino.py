"""The forward pass in OpenVINO: the ONNX graph of encoder and pooling, at a CPU's fastest precision.

Batches run in parallel on one core each; on 2 cores this took 0.8 of the CPU time of one batch after the other on both
cores. Batches keep their own lengths and heights, because OpenVINO compiles no program per shape. Steps after the
pooling are a separate graph in float32, independent of the encoder's dtype. Codes are quantized on the host.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from jaxwhiten import io
from jaxwhiten._lazy import hidden
from jaxwhiten.arrays import normalize
from jaxwhiten.engines.batching import Batch, BatchResult, Layout
from jaxwhiten.engines.cache import LazyModel, load
from jaxwhiten.errors import InputError, MissingDependencyError, check_name, optional, unknown_name
from jaxwhiten.head import Heads, Normalize, Quantize, Step, at_pooling, facts, lasting, leaves, write_steps
from jaxwhiten.head.head import before_code
from jaxwhiten.models import EncoderConfig
from jaxwhiten.models.folders import ModelFolder
from jaxwhiten.options import DTYPES
from jaxwhiten.runtime.hardware import check_process, cores, cpu_features, has_accelerator
from jaxwhiten.text import TokenIds
from jaxwhiten.types import Float32, Json

if TYPE_CHECKING:
    from jaxwhiten.models import TransformerEncoder

_CONVERTER = "openvino.tools.ovc"  # takes a third of the import
_PURPOSE = "The engine OpenVINO"
_EXTRA = "cpu"
_MOST_BYTES = 1e9  # of weights; JAX reads larger models with less memory, and ONNX holds up to 2 GB
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}
_RECORDS = 500  # for shapes of batches, of each kind and in each stream: enough for 250 shapes, of 0.2 MB each
_FEW_TOKENS = 64  # a single sentence of up to this many needs no plan
_WITH_BFLOAT16 = ("ALL", "DEFAULT", "BF16", "FP16", "AMX", "AVX10")  # in names of oneDNN's instruction sets


def _convert_model(*args: Any, **kwargs: Any) -> Any:
    """OpenVINO's own, which is imported when it is called."""
    return importlib.import_module(_CONVERTER).convert_model(*args, **kwargs)


@functools.cache
def core() -> Any:
    """The OpenVINO core, one per process; MissingDependencyError without OpenVINO."""
    if "amx_tile" in cpu_features():  # its products in bfloat16 gave NaN beside a model in float32 (2026.4)
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    # Its telemetry would send an event from a forked process, and a fork is fatal with JAX's threads.
    with hidden("openvino_telemetry"), hidden(_CONVERTER):
        openvino = optional("openvino", _EXTRA, _PURPOSE)
    if not hasattr(openvino, "convert_model"):  # for the user's own code
        openvino.convert_model = _convert_model
    core = openvino.Core()
    core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")  # or a wrong property would be an error of all that follows
    with contextlib.suppress(RuntimeError):  # not a documented property; it is 5000 by itself
        core.set_property("CPU", {"CPU_RUNTIME_CACHE_CAPACITY": _RECORDS})
    return core


def has_bfloat16() -> bool:
    """Whether this CPU has instructions for bfloat16 products, and `ONEDNN_MAX_CPU_ISA` lets oneDNN use them."""
    listed = "BF16" in core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    limit = (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "ALL").upper()
    return listed and any(name in limit for name in _WITH_BFLOAT16)


class _Compiled(NamedTuple):
    """A compiled graph, the number of its outputs, and its idle requests; a request serves one thread at a time."""

    graph: Any
    outputs: int
    idle: list[Any]

    def run(self, vectors: np.ndarray) -> np.ndarray:
        """The output for vectors."""
        request = self.request()
        result = np.array(request.infer({"vectors": vectors}, share_inputs=True, share_outputs=True)[0])
        self.idle.append(request)
        return result

    def request(self) -> Any:
        """A request; the caller puts it back among the idle ones."""
        try:
            return self.idle.pop()
        except IndexError:
            return self.graph.create_infer_request()


class _Head(NamedTuple):
    """A head: the pooled output it reads, its steps after the pooling, and its code."""

    pooled: int
    tail: Callable[[np.ndarray], np.ndarray] | None
    code: Quantize | None


class _Program(NamedTuple):
    """A compiled graph and the heads that it serves."""

    compiled: _Compiled
    heads: dict[str, _Head]


_Handle = tuple[_Program, Any, dict[str, np.ndarray]]  # a program, its request, and the request's inputs


class OpenVINOEngine:
    """An encoder with float32 parameters in OpenVINO on this machine's CPU, see `Engine`."""

    name: ClassVar[str] = "openvino"

    def __init__(
        self,
        model: TransformerEncoder | LazyModel,
        max_length: int,
        device: Any = None,
        dtype: str = "float32",
    ):
        if getattr(device, "platform", device) not in (None, "cpu"):
            raise unknown_name("device of the engine openvino", device, ("cpu",))
        self.config = model.config
        self.device = device
        self.dtype = dtype
        self.layout = Layout.on("cpu", 1, max_length)
        self.in_flight = cores() + 2
        self._given = model
        self._max_length = max_length
        self.cache = getattr(model, "cache", None)
        self._programs: dict[Any, Any] = {}
        self._latest: tuple[tuple[Any, ...], _Program | None] = ((), None)
        self._lock = threading.Lock()

    @staticmethod
    def why_not(folder: ModelFolder, dtype: str | None, device: Any) -> str | None:
        """Why `"auto"` does not choose OpenVINO for a folder; empty where nobody needs to know, None if it does."""
        if device not in (None, "cpu") or has_accelerator() or folder.static is not None:
            return ""
        if folder.config.experts:
            return "the model is a mixture of experts."
        if (size := 4 * folder.config.parameters) > _MOST_BYTES:
            return f"{size / 1e9:.1f} GB of weights are more than {_MOST_BYTES / 1e9:.0f} GB."
        try:
            if dtype == "bfloat16" and not has_bfloat16():
                return "this CPU has no instructions for bfloat16."
            return None if core() else ""
        except MissingDependencyError as error:
            return str(error)

    @staticmethod
    def is_out_of_memory(error: Exception) -> bool:
        return isinstance(error, MemoryError) or any(s in str(error) for s in ("bad_alloc", "bad alloc", "allocate"))

    def place(self, tree: Any) -> Any:
        return tree  # parameters become constants of a graph

    @staticmethod
    def load(folder: ModelFolder, dtype: str) -> tuple[Any, EncoderConfig, Path]:
        check_name("dtype", dtype, DTYPES)
        if not has_bfloat16() and dtype == "bfloat16":  # in this order: without OpenVINO, that is the error
            raise InputError("This CPU has no instructions for bfloat16: use dtype='float32'.")
        return load(folder)

    def model(self) -> Any:
        return self._given.loaded if isinstance(self._given, LazyModel) else self._given

    def at_once(self, tokens: TokenIds, heads: Heads) -> dict[str, BatchResult]:
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
        key, (latest, program) = (alone, *heads, *heads.values()), self._latest
        if program is None or len(key) != len(latest) or not all(map(operator.is_, key, latest)):
            with self._lock:
                program = self._program(heads, alone)
            self._latest = key, program
        request = program.compiled.request()
        inputs = {"input_ids": ids, "attention_mask": mask}
        if alone:
            request.infer(inputs, share_inputs=True, share_outputs=True)
        else:
            request.start_async(inputs, share_inputs=True)
        return program, request, inputs  # kept until the request has ended, because inputs are not copied

    def fetch(self, handle: Any) -> dict[str, BatchResult]:
        program, request, _ = handle
        request.wait()
        # One by one: `output_tensors` takes a twentieth of a single sentence's time.
        pooled = [np.array(request.get_output_tensor(n).data) for n in range(program.compiled.outputs)]
        program.compiled.idle.append(request)
        return {name: _finished(pooled[head.pooled], head) for name, head in program.heads.items()}

    def _program(self, heads: Heads, alone: bool) -> _Program:
        """The program for heads; heads with the same pooling share its output."""
        poolings: dict[_Key, tuple[Step, ...]] = {}
        parts: dict[str, _Head] = {}
        for name, steps in heads.items():
            pooled, rest = at_pooling(steps)
            rest, code = before_code(rest)
            if self.dtype == "float32" and not list(leaves(rest)):  # such as unit length: nothing is left to do
                pooled, rest = (*pooled, *rest), ()
            poolings.setdefault(key := _Key.of(pooled), pooled)
            tail = None
            if rest:
                width = _width(pooled, self.config.hidden_size)
                of_tail = ("tail", width, _Key.of(rest))
                tail = self._once(of_tail, self._tail, of_tail, rest, width)
            parts[name] = _Head(list(poolings).index(key), tail, code)
        compiled = self._once(("poolings", alone, *poolings), self._encoder, poolings, alone)
        return _Program(compiled, parts)

    def _once(self, key: object, make: Callable[..., Any], *of: Any) -> Any:
        if key not in self._programs:
            self._programs[key] = make(*of)
        return self._programs[key]

    def _encoder(self, poolings: Mapping[_Key, tuple[Step, ...]], alone: bool) -> _Compiled:
        """The compiled graph from tokens to pooled vectors."""

        def make() -> Any:
            from jaxwhiten.models.graph import TOKENS, EncoderGraph, Graph

            graph = Graph(_PURPOSE, _EXTRA)
            encoder = EncoderGraph(graph, self.model(), self._max_length)
            outputs = {}
            for number, steps in enumerate(poolings.values()):
                name = f"pooled.{number}"
                graph.op("Identity", write_steps(steps, encoder), output=name)
                outputs[name] = _width(steps, self.config.hidden_size)
            return graph.finish(TOKENS, outputs, {}, check=False)

        # One stream per core, or one for a single batch. Threads may move between cores: where other processes are
        # busy, one that is tied to its core waits for them.
        streams = {"NUM_STREAMS": 1 if alone else cores(), "INFERENCE_NUM_THREADS": cores()}
        hints = {"INFERENCE_PRECISION_HINT": _PRECISIONS[self.dtype], "ENABLE_CPU_PINNING": False, **streams}
        return self._compiled((self._max_length, *poolings), make, hints)

    def _tail(self, key: tuple[object, ...], steps: tuple[Step, ...], width: int) -> Callable[[np.ndarray], np.ndarray]:
        """The steps on vectors of a width, compiled unless NumPy is as fast."""
        if len(steps) == 1 and isinstance(steps[0], Normalize):
            return normalize

        def make() -> Any:
            from jaxwhiten.models.graph import Graph

            graph = Graph(_PURPOSE, _EXTRA)
            x: Any = "vectors"
            for step in steps:
                x = step.to_onnx(graph, x)
            graph.op("Identity", x, output="mapped")
            return graph.finish({"vectors": width}, {"mapped": _width(steps, width)}, {}, check=False)

        hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
        return self._compiled(key, make, hints).run

    def _compiled(self, key: tuple[object, ...], make: Callable[[], Any], hints: Json) -> _Compiled:
        """The compiled form of an ONNX graph, which is kept where the model is from a folder."""

        def converted() -> Any:
            return core().read_model(make().SerializeToString())

        text = lasting(key)
        if self.cache is None or text is None:
            graph = core().compile_model(converted(), "CPU", hints)
        else:
            version = importlib.import_module("openvino").__version__
            graph = self.cache.compiled(io.content_key(version, text), core(), converted, hints)
        return _Compiled(graph, len(graph.outputs), [])


def _width(steps: tuple[Step, ...], width: int) -> int:
    """The width of vectors after steps."""
    return functools.reduce(lambda width, step: step.output_width(width), steps, width)


def _finished(x: Float32[np.ndarray, "batch d"], head: _Head) -> BatchResult:
    if head.tail is not None and np.isfinite(x).all():
        x = head.tail(x)
    finite = np.isfinite(x).all(axis=1, keepdims=True)
    return BatchResult(x if head.code is None or not finite.all() else np.asarray(head.code(x)), finite)


class _Key(NamedTuple):
    """Equal for steps that do the same."""

    facts: Any
    arrays: str  # a hash

    @classmethod
    def of(cls, steps: tuple[Step, ...]) -> _Key:
        arrays = ((path, np.ascontiguousarray(leaf)) for path, leaf in leaves(steps))
        return cls(facts(steps), io.hashed(f"{path} {x.shape} {x.dtype}".encode() + x.tobytes() for path, x in arrays))
