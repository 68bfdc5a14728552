"""A head is the list of steps after the hidden states, from the mix of layers and the pooling to whitening and code."""

from jaxwhiten.head.folder import (
    Settings,
    check_parts,
    longest_text,
    own_pooling,
    read_head,
    says_head,
    write_folder,
)
from jaxwhiten.head.head import (
    AUTO,
    POOLINGS,
    Head,
    Heads,
    PoolingWarning,
    at_pooling,
    canonical,
    run,
    write_steps,
)
from jaxwhiten.head.pooling import AfterPrompt, LayerMix, Mean, Pooling
from jaxwhiten.head.steps import (
    CODE_FILE,
    WHITENING_FILE,
    States,
    StateStep,
    Step,
    StepModule,
    Target,
    VectorStep,
    array,
    as_pytrees,
    facts,
    lasting,
    leaves,
    step,
)
from jaxwhiten.head.vectors import Dense, Normalize, Quantize, Truncate, Whiten, dense_module

__all__ = ["AUTO", "CODE_FILE", "AfterPrompt", "Dense", "Head", "Heads", "LayerMix", "Mean", "Normalize", "StepModule"]
__all__ += ["POOLINGS", "Pooling", "PoolingWarning", "Quantize", "Settings", "StateStep", "States", "Step"]
__all__ += [
    "WHITENING_FILE",
    "StateStep",
    "Target",
    "Truncate",
    "VectorStep",
    "Whiten",
    "array",
    "as_pytrees",
    "at_pooling",
]
__all__ += [
    "canonical",
    "check_parts",
    "dense_module",
    "facts",
    "lasting",
    "leaves",
    "longest_text",
    "own_pooling",
    "read_head",
]
__all__ += ["run", "says_head", "step", "write_folder", "write_steps"]
