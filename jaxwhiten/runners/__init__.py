"""A corpus to vectors and moments: parts on disk, which a killed run resumes, on this machine or on Ray."""

from jaxwhiten.datasets.chunks import Source
from jaxwhiten.runners.local import embed_files
from jaxwhiten.runners.parts import Parts, Plan

__all__ = ["Parts", "Plan", "Source", "embed_files"]
