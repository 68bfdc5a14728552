"""Training: `make_plan` plans a run by its objective, and one `train` loop runs it for all programs."""

from jaxwhiten.training.batches import Batches
from jaxwhiten.training.distillation import encode_columns, plan_taught
from jaxwhiten.training.log import median_rate
from jaxwhiten.training.loop import RunOptions, train
from jaxwhiten.training.negatives import mine_negatives
from jaxwhiten.training.objectives import OBJECTIVES, find_objective, make_plan, objective_loss, settings_of
from jaxwhiten.training.plan import LoRA, Objective, Plan, Setup, Teacher, plan_sentences
from jaxwhiten.training.sentences import (
    Rebuild,
    TokenTable,
    noisy_vectors,
    sentence_batches,
    sentence_loss,
    split_encoder,
    sts_evaluator,
    tokenize_columns,
)
from jaxwhiten.training.step import (
    Batch,
    Evaluate,
    LossFn,
    Optimization,
    Params,
    create_state,
    make_step,
    place_batch,
)
