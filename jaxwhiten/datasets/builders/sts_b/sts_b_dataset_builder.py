"""STS benchmark: 5,749 train, 1,500 dev and 1,379 test pairs."""

from jaxwhiten.datasets.builders.base import STSBuilder


class Builder(STSBuilder):
    """STS benchmark: 5,749 train, 1,500 dev and 1,379 test pairs."""

    TASK = "STS-B"
