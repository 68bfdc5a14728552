"""A corpus to vectors and moments: parts on disk that a killed run goes on with, here or on Ray."""

from jaxwhiten.runners.local import embed_files
from jaxwhiten.runners.parts import Parts, Plan
from jaxwhiten.runners.rows import Source
