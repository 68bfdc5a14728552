"""Training: one loop for all programs, with its state, step, schedule, batches, checkpoints and log."""

from jaxwhiten.training.adapters import plan_lora, plan_on_vectors
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.checkpoint import Checkpoints
from jaxwhiten.training.corpus import TokenCorpus, TokenStream, corpus_key, tokenize_corpus
from jaxwhiten.training.distillation import plan_distillation
from jaxwhiten.training.log import Log, median_rate, plot_run, read_metrics
from jaxwhiten.training.loop import Evaluate, FitResult, RunOptions, Trained, fit, train
from jaxwhiten.training.masked import (
    MaskRules,
    mask_blocks,
    mask_rules,
    masked_batches,
    masked_evaluator,
    masked_loss,
    split_masked_lm,
)
from jaxwhiten.training.pairs import mine_negatives, pair_evaluator, pair_loss, pair_table
from jaxwhiten.training.plan import ADAPTERS, PLANNERS, Plan, Setup, make_plan
from jaxwhiten.training.sentences import (
    Rebuild,
    TokenTable,
    sentence_batches,
    sentence_loss,
    split_encoder,
    sts_evaluator,
    tokenize_columns,
)
from jaxwhiten.training.step import (
    TrainState,
    create_state,
    data_mesh,
    make_optimizer,
    make_schedule,
    make_step,
    place_batch,
)
from jaxwhiten.training.unsupervised import (
    Decoder,
    delete_tokens,
    plan_ct,
    plan_simcse_whitened,
    plan_tsdae,
    plan_whitenedcse,
)

__all__ = [
    "ADAPTERS",
    "PLANNERS",
    "Batches",
    "Checkpoints",
    "Decoder",
    "Evaluate",
    "FitResult",
    "Log",
    "MaskRules",
    "Plan",
    "Rebuild",
    "RunOptions",
    "Setup",
    "TokenCorpus",
    "TokenStream",
    "TokenTable",
    "TrainState",
    "Trained",
    "corpus_key",
    "create_state",
    "data_mesh",
    "delete_tokens",
    "fit",
    "make_optimizer",
    "make_plan",
    "make_schedule",
    "make_step",
    "mask_blocks",
    "mask_rules",
    "masked_batches",
    "masked_evaluator",
    "masked_loss",
    "median_rate",
    "mine_negatives",
    "pair_evaluator",
    "pair_loss",
    "pair_table",
    "place_batch",
    "plan_ct",
    "plan_distillation",
    "plan_lora",
    "plan_on_vectors",
    "plan_simcse_whitened",
    "plan_tsdae",
    "plan_whitenedcse",
    "plot_run",
    "read_metrics",
    "sentence_batches",
    "sentence_loss",
    "split_encoder",
    "split_masked_lm",
    "sts_evaluator",
    "tokenize_columns",
    "tokenize_corpus",
    "train",
]
