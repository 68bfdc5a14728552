"""A corpus to vectors and moments: parts on disk, which a killed run resumes, on this machine or on Ray."""

from jaxwhiten.datasets.chunks import Source
from jaxwhiten.runners.parts import EmbedPlan, Parts, embed_files

__all__ = ["EmbedPlan", "Parts", "Source", "embed_files"]
