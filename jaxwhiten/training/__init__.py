"""Training: `train` fine-tunes an encoder; other programs are built of `make_plan` and `run_plan`."""

from jaxwhiten.errors import optional

optional("optax", "train", "Training")

from jaxwhiten.options import TrainingOptions
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.fine_tune import Tuned, fine_tune, load_bare, train
from jaxwhiten.training.held_out import Figure, HeldOut, beside, hold_out, write_held_out
from jaxwhiten.training.loop import run_plan
from jaxwhiten.training.objectives import (
    OBJECTIVES,
    encode_columns,
    find_objective,
    make_plan,
    objective_loss,
    plan_taught,
    settings_of,
)
from jaxwhiten.training.plan import Objective, Plan, Setup, plan_sentences
from jaxwhiten.training.rows import mine_negatives, read_rows
from jaxwhiten.training.sentences import (
    Rebuild,
    TokenTable,
    noisy_vectors,
    sentence_batches,
    sentence_loss,
    split_encoder,
    tokenize_columns,
)
from jaxwhiten.training.step import Batch, Evaluate, LossFn, Params, create_state, data_mesh, make_step, place_batch

__all__ = ["OBJECTIVES", "Batch", "Batches", "Evaluate", "Figure", "HeldOut", "LossFn", "Objective", "Params"]
__all__ += ["Plan", "Rebuild", "Setup", "TokenTable", "TrainingOptions", "Tuned", "beside", "create_state"]
__all__ += ["data_mesh", "encode_columns", "find_objective", "fine_tune", "hold_out", "load_bare", "make_plan"]
__all__ += ["make_step", "mine_negatives", "noisy_vectors", "objective_loss", "place_batch", "plan_sentences"]
__all__ += ["plan_taught", "read_rows", "run_plan", "sentence_batches", "sentence_loss", "settings_of"]
__all__ += ["split_encoder", "tokenize_columns", "train", "write_held_out"]
