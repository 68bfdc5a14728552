"""Programs compiled for accelerators that are not here: targets, what their compilers say, and what must hold of it.

A TPU's own compiler (libtpu) and the GPU's compile on any machine. What they show is the structure of a program, its
static memory plan, its collectives and its precision: neither speed nor numerics.

Compiling happens in a process of its own (`tests.accelerators.aot`): libtpu installs signal handlers, locks a file.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

H100 = (
    "gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 "
    "shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 "
    "block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 "
    "l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84978434048 "
    "shared_memory_per_block_optin: 232448 "
    "cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536 } "
    'platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 } device_description_str: "NVIDIA H100 80GB HBM3"'
)


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of accelerator, with its maker's figures per chip."""

    name: str
    topology: str  # libtpu's name of four chips; empty for a GPU, which is one
    tflops: float  # peak rate of bfloat16 products with float32 sums, in 10¹² FLOP/s
    bandwidth: float  # of the memory, in 10⁹ bytes/s
    memory: float  # in 10⁹ bytes

    @property
    def is_tpu(self) -> bool:
        return bool(self.topology)

    @functools.cached_property
    def devices(self) -> list[Any]:
        """Its devices, on which programs compile and nothing runs."""
        if self.is_tpu:
            return topologies.get_topology_desc(topology_name=self.topology, platform="tpu").devices
        import jax_plugins.xla_cuda12  # noqa: F401

        described = {"topology_name": "", "platform": "cuda", "target_config": H100, "topology": "1x1x1"}
        return topologies.get_topology_desc(**described).devices

    def mesh(self, axis: str = "data") -> Mesh:
        """All devices in one axis."""
        return Mesh(np.array(self.devices), (axis,))


# Peaks as published by Google (cloud.google.com/tpu/docs) and NVIDIA (H100 SXM data sheet, without sparsity).
TARGETS = {
    target.name: target
    for target in (
        Target("v4", "v4:2x2x1", 275, 1228, 32),
        Target("v5e", "v5e:2x2", 197, 819, 16),
        Target("v5p", "v5p:2x2x1", 459, 2765, 95),
        Target("v6e", "v6e:2x2", 918, 1640, 32),
        Target("h100", "", 989, 3352, 80),
    )
}
TPUS = tuple(name for name, target in TARGETS.items() if target.is_tpu)


@dataclasses.dataclass(frozen=True)
class Program:
    """One compiled program of the library, and what must hold of it."""

    name: str  # of the row in the tables
    lower: Callable[[Target], Any]
    temporaries: float = 0.1  # GB per device that it may have
    collectives: frozenset[str] = frozenset()  # kinds and element types that may pass between devices
    # The length of rows whose attention a kernel computes, so that there is no array of [batch, heads, length, length]
    # in float32; 0 where there may be.
    no_maps: int = 0
    on_gpu: float = 0.0  # temporaries on a GPU, which is one device where TPUs are four; 0 for no more than there
    targets: tuple[str, ...] = ()  # those it is made for; empty for all
    slow: bool = True  # left out of the default tests

    def is_for(self, target: Target) -> bool:
        return not self.targets or target.name in self.targets


@dataclasses.dataclass(frozen=True)
class Report:
    """What a compiler says of a program, per device."""

    program: str
    target: str
    seconds: float  # of lowering and compiling, here
    gflop: float | None  # as the compiler models it; None where it does not
    gigabytes: float | None  # likewise
    temporaries: float  # GB, as the following
    arguments: float
    outputs: float
    collectives: Mapping[str, int]  # kind and element type, as in "all-reduce f32", with how many there are
    kernels: Mapping[str, int]  # calls of kernels that are not the compiler's own
    faults: tuple[str, ...]  # what must not be, in words; see `faults_of`


_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
_COLLECTIVE = re.compile(rf"= (?P<shapes>\(.*?\)|\S+) (?P<kind>{_KINDS})(?:-start)?\(")
_ELEMENT = re.compile(r"\b(pred|bf16|[fsuc]\d+)\[")
_CALL = re.compile(r'custom_call_target="([^"]+)"')
_HOST = re.compile(r"\b(infeed|outfeed)\(|is_host_transfer=true|(MoveToHost|MoveToDevice|xla_python_\w*callback)")
_PRODUCT = re.compile(
    r"(?:stablehlo\.dot_general|stablehlo\.convolution)(?P<rest>[^\n]*?) : \((?P<operands>[^)]*)\) ->", re.DOTALL
)


def collectives_of(compiled: str) -> dict[str, int]:
    """Kind and element type of what passes between devices, with how many instructions there are."""
    found: dict[str, int] = {}
    for match in _COLLECTIVE.finditer(compiled):
        for element in sorted(set(_ELEMENT.findall(match["shapes"]))):
            key = f"{match['kind']} {element}"
            found[key] = found.get(key, 0) + 1
    return found


def faults_of(program: Program, target: Target, lowered: str, compiled: str, temporaries: float) -> list[str]:
    """What a program must not do, in words: by its StableHLO, in which no pass has hidden a type yet, and its HLO."""
    faults = []
    if target.is_tpu and re.search(r"\bf64\[|xf64>|tensor<f64>", lowered + compiled):
        faults.append("float64, which a TPU emulates")
    for match in _PRODUCT.finditer(lowered):
        wide = re.findall(r"f32>|f32,", match["operands"])
        if len(wide) == 2 and "HIGHEST" not in match["rest"]:
            faults.append(f"a float32 product below the highest precision: {match['operands']}")
    allowed = program.temporaries if target.is_tpu else program.on_gpu or program.temporaries
    if temporaries > allowed:
        faults.append(f"{temporaries:.3f} GB of temporaries, {allowed} allowed")
    if strange := sorted(set(collectives_of(compiled)) - program.collectives):
        faults.append(f"collectives: {', '.join(strange)}")
    length = program.no_maps
    if length and (maps := re.findall(rf"\bf32\[\d+,\d+,{length},{length}\]", compiled)):
        faults.append(f"attention maps: {', '.join(sorted(set(maps)))}")
    if match := _HOST.search(compiled):
        faults.append(f"a transfer to or from the host: {match[0]}")
    return faults


def examine(program: Program, target: Target) -> Report:
    """Compiles a program for a target."""
    start = time.perf_counter()
    lowered = program.lower(target)
    compiled = lowered.compile()
    seconds = time.perf_counter() - start
    memory, text = compiled.memory_analysis(), compiled.as_text()
    cost = compiled.cost_analysis() or {}
    temporaries = memory.temp_size_in_bytes / 1e9
    kernels: dict[str, int] = {}
    for name in _CALL.findall(text):
        kernels[name] = kernels.get(name, 0) + 1
    return Report(
        program.name,
        target.name,
        round(seconds, 2),
        round(cost["flops"] / 1e9, 3) if "flops" in cost else None,
        round(cost["bytes accessed"] / 1e9, 4) if "bytes accessed" in cost else None,
        round(temporaries, 4),
        round(memory.argument_size_in_bytes / 1e9, 4),
        round(memory.output_size_in_bytes / 1e9, 4),
        collectives_of(text),
        kernels,
        tuple(faults_of(program, target, lowered.as_text(), text, temporaries)),
    )


def shaped(tree: Any, mesh: Mesh, *spec: Any) -> Any:
    """Shapes of the leaves, laid out over a mesh; by default a copy on every device."""
    layout = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout), tree)
