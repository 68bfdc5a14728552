"""What follows the hidden states: a list of steps, from the mix of layers and the pooling to whitening and code."""

from jaxwhiten.head.coding import CODE_FILE, Quantise, code_steps
from jaxwhiten.head.folder import modules_of, read_head, says_head, write_folder
from jaxwhiten.head.head import Head, at_pooling, pool, run, write_steps
from jaxwhiten.head.names import AUTO, POOLINGS, Tables, canonical
from jaxwhiten.head.pooling import AfterPrompt, Mean, Pooling
from jaxwhiten.head.settings import Settings
from jaxwhiten.head.states import LayerMix
from jaxwhiten.head.steps import STEPS, Module, States, Step, Target, VectorStep, array, step
from jaxwhiten.head.vectors import WHITENING_FILE, Dense, Normalize, Truncate, Whiten, dense_module
