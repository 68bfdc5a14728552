"""Training: one loop for every program, with its state, step, schedule, batches, checkpoints and log."""

from jaxwhiten.training.batches import Batches
from jaxwhiten.training.checkpoint import Checkpoints
from jaxwhiten.training.log import Log, plot_run, read_metrics
from jaxwhiten.training.loop import Evaluate, FitResult, fit
from jaxwhiten.training.run import RunOptions, Trained, train
from jaxwhiten.training.schedule import make_optimizer, make_schedule
from jaxwhiten.training.sentences import Rebuild, sentence_batches, sentence_loss, split_encoder, sts_evaluator
from jaxwhiten.training.state import TrainState, create_state, data_mesh, place_batch
from jaxwhiten.training.step import make_step
from jaxwhiten.training.tokens import TokenTable, tokenize_columns

__all__ = [
    "Batches",
    "Checkpoints",
    "Evaluate",
    "FitResult",
    "Log",
    "Rebuild",
    "RunOptions",
    "TokenTable",
    "TrainState",
    "Trained",
    "create_state",
    "data_mesh",
    "fit",
    "make_optimizer",
    "make_schedule",
    "make_step",
    "place_batch",
    "plot_run",
    "read_metrics",
    "sentence_batches",
    "sentence_loss",
    "split_encoder",
    "sts_evaluator",
    "tokenize_columns",
    "train",
]
