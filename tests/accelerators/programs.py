"""The library's compiled programs, as they run on accelerators, and faults that the laboratory has to find.

Encoders of full size have two layers, but for the two at published sizes: 12 take minutes to compile, and what a layer
needs for a time it gives back.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jax.sharding import PartitionSpec

from jaxwhiten.codes import SpectrumCode
from jaxwhiten.engines.batching import SLOTS
from jaxwhiten.engines.forward import forward
from jaxwhiten.head import Head, Normalize, Quantize, Step, Whiten
from jaxwhiten.models import FAMILIES as REGISTRY
from jaxwhiten.models import EncoderConfig, init_model
from jaxwhiten.models.attention import kernel_for
from jaxwhiten.options import TrainingOptions
from jaxwhiten.search.jax_kernels import CodedRows, Floats, searcher
from jaxwhiten.training.objectives import objective_loss
from jaxwhiten.training.sentences import sentence_loss, split_encoder
from jaxwhiten.training.step import TrainState, make_step, transformation
from jaxwhiten.whitening import Moments, Whitening
from jaxwhiten.whitening.affine import map_block
from jaxwhiten.whitening.moments import device_sums
from tests.accelerators.laboratory import TPUS, Program, Target, shaped
from tests.tiny import FAMILIES, tiny_config

Steps = tuple[Step, ...]
TOKENS = 65_536  # of a batch on each device
REDUCED = frozenset({"all-reduce f32", "all-reduce bf16", "all-reduce s32"})
BASE = EncoderConfig("bert", 30_522, 768, 2, 12, 3072, 512)
LARGE = EncoderConfig("bert", 30_522, 1024, 2, 16, 4096, 512)
# Of published sizes, with all their layers.
QWEN = REGISTRY["qwen3"].parse_config(
    {
        "model_type": "qwen3",
        "vocab_size": 151_669,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 32_768,
        "rope_theta": 1_000_000,
    }
)
GEMMA = REGISTRY["gemma3_text"].parse_config(
    {
        "model_type": "gemma3_text",
        "vocab_size": 262_144,
        "hidden_size": 768,
        "intermediate_size": 1152,
        "num_hidden_layers": 24,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "max_position_embeddings": 2048,
        "sliding_window": 512,
        "query_pre_attn_scalar": 256,
        "use_bidirectional_attention": True,
    }
)


def model_of(config: EncoderConfig, dtype: str, **how: Any) -> Any:
    """A model without its numbers; weights are in its dtype, as `JAXEngine` places them."""
    model = nnx.eval_shape(lambda: init_model(config, seed=0, dtype=dtype, **how))
    graph, state = nnx.split(model)
    cast = jnp.bfloat16 if dtype == "bfloat16" else jnp.float32
    return graph, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, cast), state)


def encode(
    config: EncoderConfig,
    rows: int,
    length: int,
    tokens: int | None = None,  # those that are none of padding, where they are packed
    heads: Callable[[], tuple[Steps, ...]] = lambda: (Head.named("mean").steps,),
    dtype: str = "bfloat16",  # of matrix products
    sentences: int = 0,  # how many each row may hold; 0 for one, without segments
) -> Callable[[Target], Any]:
    """The forward pass over rows of a length on each device, and what follows."""

    def lower(target: Target) -> Any:
        mesh = target.mesh()
        graph, state = model_of(config, dtype)
        graph, weights = (graph, jax.tree.structure(state)), jax.tree.leaves(state)
        ids = jax.ShapeDtypeStruct((rows, mesh.size, length), jnp.int32)
        lengths = jax.ShapeDtypeStruct((rows, mesh.size, *[sentences] * bool(sentences)), jnp.int32)
        weights, steps = shaped(weights, mesh), shaped(heads(), mesh)
        ids, lengths = (shaped(x, mesh, None, "data") for x in (ids, lengths))
        kernel = kernel_for(target.devices[0], dtype, config.head_size)
        return forward.lower(graph, weights, ids, lengths, steps, tokens, mesh, kernel)

    return lower


@functools.cache
def _moments(d: int) -> Moments:
    return Moments().update(np.random.default_rng(0).normal(size=(2 * d, d)))


def _whitening(d: int) -> Whitening:
    return Whitening.from_moments(_moments(d), n_components=128)


def whitened() -> tuple[Steps, ...]:
    return ((*Head.named("first_last_avg").steps, Whiten.of(_whitening(768)), Normalize()),)


def coded() -> tuple[Steps, ...]:
    return ((*Head.named("mean").steps, Quantize.of(SpectrumCode(bytes=48).fit(_moments(768)))),)


def last_token() -> tuple[Steps, ...]:
    return (Head.named("lasttoken").steps,)


def every_pooling() -> tuple[Steps, ...]:
    names = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", "last2avg")
    return tuple(Head.named(name).steps for name in names)


def reduce_rows(rows: int, d: int, dtype: Any = jnp.float32) -> Callable[[Target], Any]:
    """The sums behind `Moments`, by `pmap`."""

    def lower(target: Target) -> Any:
        block = jax.ShapeDtypeStruct((len(target.devices), rows, d), dtype)
        counts = jax.ShapeDtypeStruct((len(target.devices), rows), jnp.float32)
        centre, scale = jax.ShapeDtypeStruct((d,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32)
        return device_sums(tuple(target.devices)).lower(block, counts, centre, scale)

    return lower


def transform(rows: int, d: int, k: int) -> Callable[[Target], Any]:
    """A block of rows through a whitening, on one device."""

    def lower(target: Target) -> Any:
        alone = jax.sharding.SingleDeviceSharding(target.devices[0])
        shapes = ((rows, d), (d,), (d, k), (k,))
        return map_block().lower(*(jax.ShapeDtypeStruct(shape, jnp.float32, sharding=alone) for shape in shapes))

    return lower


def _train(target: Target, params: Any, loss: Any, batch: dict[str, Any]) -> Any:
    mesh, how = target.mesh(), TrainingOptions(steps=1000, batch_size=len(target.devices), learning_rate=2e-5)
    state = jax.eval_shape(lambda p: TrainState(jnp.zeros((), jnp.int32), p, transformation(how).init(p)), params)
    step = make_step(loss, how, mesh)
    rate_and_key = jax.eval_shape(step.begin, state.step)
    return step.program.lower(step.frozen, *rate_and_key, shaped(state, mesh), shaped(batch, mesh, "data"))


def train_pairs(config: EncoderConfig, rows: int, length: int, remat: bool = False) -> Callable[[Target], Any]:
    """A step of Sentence-BERT with in-batch negatives over so many pairs on each device."""

    def lower(target: Target) -> Any:
        sizes = dataclasses.replace(config, pooler=False)  # it would be frozen, and the program hold its numbers
        model = nnx.eval_shape(lambda: init_model(sizes, seed=0, dtype="bfloat16", remat=remat))
        encoder, rebuild = split_encoder(model, "mean")
        n = rows * len(target.devices)
        batch = {
            "input_ids": jax.ShapeDtypeStruct((n, 2, length), jnp.int32),
            "lengths": jax.ShapeDtypeStruct((n, 2), jnp.int32),
        }
        loss = sentence_loss(rebuild, objective_loss("mnr"))
        return _train(target, {"encoder": encoder, "head": {}}, loss, batch)

    return lower


def search(rows: int, d: int, queries: int, k: int) -> Any:
    """Top k of documents spread over all devices."""

    def lower(target: Target) -> Any:
        mesh = target.mesh("documents")
        asked = shaped(jax.ShapeDtypeStruct((queries, d), jnp.float32), mesh)
        documents = Floats(shaped(jax.ShapeDtypeStruct((rows, d), jnp.float32), mesh, "documents"))
        return searcher(mesh, k).lower(asked, documents, shaped(jax.ShapeDtypeStruct((), jnp.int32), mesh))

    return lower


def search_codes(rows: int, size: int, width: int, queries: int, k: int) -> Any:
    """Top k of codes with `width` coordinates a byte, spread over all devices, by exact cosines."""

    def lower(target: Target) -> Any:
        mesh = target.mesh("documents")

        def array(shape: tuple[int, ...], dtype: Any, *spec: Any) -> Any:
            return shaped(jax.ShapeDtypeStruct(shape, dtype), mesh, *spec)

        documents = CodedRows(
            array((rows, size), jnp.uint8, "documents"),
            array((rows,), jnp.float32, "documents"),
            array((256 * size, width), jnp.float32),
            array((size,), jnp.int32),
        )
        asked = array((queries, size * width + 1), jnp.float32)
        return searcher(mesh, k).lower(asked, documents, array((), jnp.int32))

    return lower


def _tiny(family: str) -> EncoderConfig:
    local = {"local_layers": (1,)} if "local_layers" in FAMILIES[family] else {}
    return tiny_config(**{**FAMILIES[family], "num_layers": 2, **local})


TINY = tiny_config(num_layers=1)
WIDE = tiny_config(num_layers=1, hidden_size=128, num_heads=2)  # heads of 64, as the kernel knows them
# Each device takes some of the queries' best, chooses among them, and gives them to all.
SEARCH = frozenset(
    f"{kind} {element}"
    for kind in ("all-to-all", "all-gather", "collective-permute", "all-reduce")
    for element in ("f32", "s32", "u32")
)
# In-batch negatives are compared with the vectors of all devices.
TRAINING = REDUCED | {"all-gather f32"}
PROGRAMS: Sequence[Program] = (
    *(Program(f"{family}, tiny", encode(_tiny(family), 64, 32, 1024, dtype="float32")) for family in FAMILIES),
    Program("every pooling, tiny", encode(_tiny("bert"), 64, 32, 1024, every_pooling)),
    Program("encode, tiny", encode(TINY, 16, 16, 128), slow=False),
    Program("encode, base, 512 × 128", encode(BASE, 512, 128), 2.0),
    Program("encode, base, 128 × 512", encode(BASE, 128, 512), 2.0),
    Program("encode, base, whitened to 128", encode(BASE, 512, 128, None, whitened), 2.0),
    Program("encode, base, code of 48 bytes", encode(BASE, 512, 128, None, coded), 2.0),
    Program("encode, base, float32", encode(BASE, 512, 128, dtype="float32"), 2.0),
    Program("encode, large, 128 × 512", encode(LARGE, 128, 512), 2.6),
    Program("encode, base, 4,096 × 16 packed in 24", encode(BASE, 4096, 24, TOKENS), 2.0),
    Program("encode, base, 4,096 × 16 in rows of 128", encode(BASE, 512, 128, sentences=SLOTS), 2.0),
    Program("encode, base, rows of 512", encode(BASE, 128, 512, sentences=SLOTS), 2.0, no_maps=512),
    Program("encode, large, rows of 512", encode(LARGE, 128, 512, sentences=SLOTS), 2.5, no_maps=512),
    Program("encode, tiny, rows of 256", encode(WIDE, 2, 256, sentences=SLOTS), no_maps=256, slow=False),
    Program("encode, tiny, rows of 128", encode(TINY, 8, 128, sentences=SLOTS), slow=False),
    Program("encode, Qwen3-Embedding-0.6B, 128 × 512", encode(QWEN, 128, 512, heads=last_token), 4.0),
    Program("encode, embeddinggemma-300m, 128 × 512", encode(GEMMA, 128, 512), 4.0),
    Program("reduce rows, 16,384 × 768", reduce_rows(16_384 // 4, 768), 0.01, REDUCED, on_gpu=0.05),
    Program("reduce rows, bfloat16", reduce_rows(16_384 // 4, 768, jnp.bfloat16), 0.01, REDUCED, on_gpu=0.05),
    Program("reduce rows, 256 × 64", reduce_rows(64, 64), 0.01, REDUCED, slow=False),
    Program("whiten, 8,192 × 768 to 256", transform(8192, 768, 256), 0.05),
    Program("whiten, 256 × 64 to 32", transform(256, 64, 32), slow=False),
    Program("search, exact, 1,000,000 × 256", search(1_000_448, 256, 1024, 10), 0.25, SEARCH, on_gpu=0.4),
    Program("search, codes of 48 bytes, 1,000,000", search_codes(1_000_448, 48, 8, 256, 10), 0.6, SEARCH, on_gpu=1.0),
    Program("search, codes of 48 bytes, one query", search_codes(1_000_448, 48, 8, 1, 10), 0.6, SEARCH, on_gpu=1.0),
    Program("search, codes, 2,048 of 8 bytes", search_codes(2048, 8, 4, 8, 4), 0.05, SEARCH, slow=False),
    Program("search, exact, 2,048 × 32", search(2048, 32, 8, 4), 0.05, SEARCH, slow=False),
    Program("train pairs, base, 256 × 64", train_pairs(BASE, 128, 64), 6.0, TRAINING),
    Program("train pairs, base, 256 × 64, remat", train_pairs(BASE, 128, 64, True), 2.0, TRAINING),
    Program("train pairs, tiny", train_pairs(TINY, 8, 16), 0.05, TRAINING, slow=False),
)


def _leak(target: Target) -> Any:
    """Rows centred in float64, as a reduction that forgot its cast would."""
    with jax.enable_x64(True):
        x = shaped(jax.ShapeDtypeStruct((64, 32), jnp.float32), target.mesh(), "data")
        return jax.jit(lambda x: (x.astype(jnp.float64) - x.mean(dtype=jnp.float64)).astype(jnp.float32)).lower(x)


def _gathered(target: Target) -> Any:
    """Sums of all devices' rows by gathering the rows."""

    def rows(x: Any) -> Any:
        whole = lax.all_gather(x, "data", axis=0, tiled=True)
        return jnp.matmul(whole.T, whole, precision=lax.Precision.HIGHEST)

    x = shaped(jax.ShapeDtypeStruct((256, 64), jnp.float32), target.mesh(), "data")
    everywhere = PartitionSpec()
    mapped = jax.shard_map(
        rows, mesh=target.mesh(), in_specs=PartitionSpec("data"), out_specs=everywhere, check_vma=False
    )
    return jax.jit(mapped).lower(x)


def _low(target: Target) -> Any:
    x = shaped(jax.ShapeDtypeStruct((64, 32), jnp.float32), target.mesh(), "data")
    return jax.jit(lambda x: jnp.matmul(x.T, x)).lower(x)


def _maps(target: Target) -> Any:
    """Attention whose maps are kept."""

    def attend(x: Any) -> Any:
        scores = jnp.matmul(x, x.swapaxes(2, 3), precision=lax.Precision.HIGHEST)
        return jnp.matmul(jax.nn.softmax(scores), x, precision=lax.Precision.HIGHEST)

    x = shaped(jax.ShapeDtypeStruct((4, 2, 128, 16), jnp.float32), target.mesh(), "data")
    return jax.jit(attend).lower(x)


def _from_host(target: Target) -> Any:
    """A program that asks the host for something."""
    x = shaped(jax.ShapeDtypeStruct((64,), jnp.float32), target.mesh())
    return jax.jit(lambda x: jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct((64,), jnp.float32), x)).lower(x)


# Planted, each with the word by which it has to be found.
FAULTS: dict[str, Program] = {
    "float64": Program("fault: float64", _leak, collectives=REDUCED, targets=TPUS),
    "all-gather": Program("fault: rows gathered", _gathered, collectives=REDUCED, targets=TPUS),
    "attention maps": Program("fault: padded maps", _maps, 2.0, no_maps=128),
    "highest precision": Program("fault: low precision", _low, collectives=REDUCED),
    "temporaries": Program("fault: no room", search(2048, 32, 8, 4), 1e-6, SEARCH),
    "host": Program("fault: host", _from_host, targets=TPUS),  # where there is no GPU it is not even lowered for one
}
