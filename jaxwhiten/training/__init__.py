"""Training: `make_plan` plans a run by its objective, and one `train` loop runs it for all programs."""

from jaxwhiten.training.corpus import corpus_key, tokenize_corpus
from jaxwhiten.training.log import median_rate
from jaxwhiten.training.loop import RunOptions, train
from jaxwhiten.training.masked import mask_rules, masked_batches, masked_evaluator, masked_loss
from jaxwhiten.training.objectives import OBJECTIVES, find_objective, make_plan, objective_loss, own_settings
from jaxwhiten.training.pairs import mine_negatives, pair_evaluator, pair_loss, pair_table
from jaxwhiten.training.plan import Adapter, Objective, Plan, Setup, Teacher
from jaxwhiten.training.sentences import (
    Rebuild,
    TokenTable,
    sentence_batches,
    sentence_loss,
    split_encoder,
    sts_evaluator,
    tokenize_columns,
)
from jaxwhiten.training.step import Evaluate, Optimization, create_state, make_step, place_batch
