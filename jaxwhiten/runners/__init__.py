"""A corpus to vectors and moments: parts on disk, which a killed run resumes, on this machine or on Ray."""

from jaxwhiten.datasets.chunks import Source
from jaxwhiten.runners.parts import Parts, Plan, embed_files

__all__ = ["Parts", "Plan", "Source", "embed_files"]
