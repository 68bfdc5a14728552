"""The sample that ships with the package: not a benchmark."""

from jaxwhiten.datasets.builders.base import STSBuilder


class Builder(STSBuilder):
    """The sample that ships with the package: not a benchmark."""

    TASK = "sts_sample"
