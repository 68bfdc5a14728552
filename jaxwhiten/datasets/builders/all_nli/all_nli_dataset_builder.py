"""Natural language inference: AllNLI (SNLI and MultiNLI), or the NLI files of a folder."""

from jaxwhiten.datasets.builders.base import NLIBuilder


class Builder(NLIBuilder):
    """Natural language inference: AllNLI (SNLI and MultiNLI), or the NLI files of a folder."""
