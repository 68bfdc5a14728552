"""Plans of runs: trained parameters and loss. Only planners know teachers, decoders and second encoders.

A planner turns an objective's loss and a `Setup` into parameters, a loss on batches, and labels. The loop, its step and
its checkpoints know nothing else of an objective.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxwhiten.encoding import Encoder
from jaxwhiten.encoding.encoder import trained
from jaxwhiten.errors import Bounds, InputError, check_name
from jaxwhiten.head import Step, at_pooling
from jaxwhiten.losses import Loss, init_classifier
from jaxwhiten.options import TrainingOptions
from jaxwhiten.training.sentences import Rebuild, TokenTable, sentence_loss, split_encoder
from jaxwhiten.training.step import Batch, LossFn, Params
from jaxwhiten.types import Float, Json, Scalar, Shaped


@dataclasses.dataclass(frozen=True)
class Setup:
    """The inputs of a planner: model, data and settings of a run.

    >>> start, columns = load_bare("jaxwhiten-tiny"), [["A dog runs."], ["A dog ran."]]
    >>> setup = Setup(start.module, start, columns, tokenize_columns(columns, start.view.core.tokenizer))
    """

    model: Any  # the encoder to train
    start: Encoder  # the same encoder with its tokenizer and the head to train through
    columns: Sequence[Sequence[str]]  # of sentences
    table: TokenTable  # the tokenized columns
    labels: Shaped[np.ndarray, " n"] | None = None
    classes: int = 0  # the number of classes, if labels are classes
    prompts: Sequence[str | None] = ()  # of the columns; None is the default one
    options: TrainingOptions = dataclasses.field(default_factory=TrainingOptions)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The result of a planner: parameters `{"encoder": ..., "head": ...}` and others that the loss trains, and a loss.

    Parameters under `"steps"` are steps on vectors; they follow the fixed steps in the exported head.

    >>> plan = make_plan("mnr", setup)  # of the example of `Setup`
    >>> plan.encoder(plan.params).view.head.name
    'mean'
    """

    params: Params
    loss: LossFn
    rebuild: Rebuild  # from `params["encoder"]` to the model
    labels: Shaped[np.ndarray, " n *m"] | None = None  # become `labels` of a batch, row by row
    vectors: Float[np.ndarray, "n columns d"] | None = None  # become `vectors` of a batch
    frozen: Params | None = None  # see `make_step`
    start: Encoder | None = None  # the encoder before training
    fixed: tuple[Step, ...] = ()  # steps of its head that are not trained
    teacher: str = ""  # the fingerprint of the encoder that gives the labels

    def encoder(self, params: Params) -> Encoder:
        """The encoder with these parameters, which is scored and exported."""
        assert self.start is not None
        return trained(self.start, self.rebuild(params["encoder"]), (*self.fixed, *params.get("steps", ())))


def plan_sentences(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """A loss on the vectors of the head, whose steps after the pooling are trained, with a classifier for classes.

    >>> sorted(plan_sentences(find_objective("mnr"), objective_loss("mnr"), setup).params)
    ['encoder', 'head', 'steps']
    """
    encoder, rebuild = split_encoder(setup.model, setup.start.view.head.name)
    fixed, steps = at_pooling(setup.start.view.head.steps)
    head = {}
    if objective.label == "class":
        settings: Json = dict(setup.options.settings)
        head = init_classifier(jax.random.key(setup.options.seed), setup.start.dimension, setup.classes, **settings)
    params = {"encoder": encoder, "head": head, "steps": steps}
    labels = setup.labels if objective.label else None
    compiled = sentence_loss(rebuild, loss, steps=fixed, passes=objective.passes, skipped=setup.table.skipped)
    return Plan(params, compiled, rebuild, labels, start=setup.start, fixed=fixed)


@dataclasses.dataclass(frozen=True)
class Objective:
    """A loss, its requirements on the data, and its planner.

    Its settings are the keyword-only parameters of `loss` and `plan`. `loss` is called as
    `(*columns, labels, **head, **settings)`, without labels if it needs none; `plan` as `(objective, loss, setup,
    **settings)`.

    >>> def loss(first, second):
    ...     return jnp.mean((first - second) ** 2)
    >>> Objective("distance", loss, (2, 2)).check(["first", "second"], None)
    """

    name: str  # in configs
    loss: Callable[..., Scalar]
    columns: tuple[int, int | None]  # minimum and maximum number of sentences per row
    # "class" or "score" come with the data; a teacher gives "vector" ([b, columns, e]) or "margin" ([b]).
    label: str | None = None
    passes: int = 1  # how often each sentence is encoded
    plan: Callable[..., Plan] = plan_sentences
    in_batch: bool = False  # whether the other rows of a batch are negatives
    bounds: Mapping[str, Bounds] = dataclasses.field(default_factory=dict)  # of settings; others are finite numbers

    def prompts(self, encoder: Encoder, columns: int) -> list[str | None]:
        """The prompt of each column: of a query and documents if rows are like searches, else None, the default one."""
        if columns == 1 or self.label in ("class", "score", "vector"):
            return [None] * columns
        return [encoder.queries.prompt, *[encoder.documents.prompt] * (columns - 1)]

    def check(self, columns: Sequence[str], label: str | None) -> None:
        """Raises InputError if it cannot train on rows with these columns and `"class"`, `"score"` or no labels."""
        least, most = self.columns
        if len(columns) < least or (most is not None and len(columns) > most):
            expected = f"{least}" if most == least else f"at least {least}"
            raise InputError(
                f"The objective {self.name!r} expects {expected} sentences per row, got {', '.join(columns)}."
            )
        if self.label in ("class", "score") and label != self.label:
            raise InputError(f"The objective {self.name!r} expects a {self.label} in every row, got {label or 'none'}.")


def plan_lora(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """The objective's own plan, with LoRA as the trained parameters and the encoder's parameters frozen.

    W becomes W + alpha / rank · A B, with A [inputs, rank] drawn from a normal distribution and B [rank, outputs] zero.
    The model starts unchanged, and the products are merged into the projections for scoring and export.

    References:
      Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (ICLR 2022), section 4.1, equation 3.
    """
    plan = objective.plan(objective, loss, setup)
    base = plan.params["encoder"]
    chosen = setup.options.lora_projections
    rank = setup.options.lora
    kernels = {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(base) if _name(path).endswith("/kernel")}
    names = {name.split("/")[-2] for name in kernels}
    for projection in chosen:
        check_name("projection", projection, names)
    kernels = {name: leaf for name, leaf in kernels.items() if name.split("/")[-2] in chosen}
    if not kernels or not 1 <= rank <= min(min(leaf.shape) for leaf in kernels.values()):
        raise InputError(f"LoRA needs projections and a rank from 1 to their width: got {chosen}, rank {rank}.")
    keys = jax.random.split(jax.random.key(setup.options.seed), len(kernels))
    adapter = {
        name: {
            "down": jax.random.normal(key, (len(leaf), rank)) * len(leaf) ** -0.5,
            "up": jnp.zeros((rank, leaf.shape[1])),
        }
        for key, (name, leaf) in zip(keys, kernels.items(), strict=True)
    }

    def merged(base: Params, adapter: Params) -> Params:
        def add(path: Any, leaf: Any) -> Any:
            if (name := _name(path)) not in adapter:
                return leaf
            product = jnp.matmul(adapter[name]["down"], adapter[name]["up"], precision="highest")
            return leaf + setup.options.lora_alpha / rank * product

        return jax.tree.map_with_path(add, base)

    def adapted(params: Params, batch: Batch, key: jax.Array) -> Any:
        return plan.loss({**params, "encoder": merged(params["frozen"], params["encoder"])}, batch, key)

    return dataclasses.replace(
        plan,
        params={**plan.params, "encoder": adapter},
        loss=adapted,
        rebuild=lambda adapter: plan.rebuild(merged(base, adapter)),
        frozen=base,
    )


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/").removesuffix("/value")
