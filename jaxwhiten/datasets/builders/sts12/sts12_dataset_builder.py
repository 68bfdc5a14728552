"""SemEval STS 2012: 3,108 scored pairs in five subsets."""

from jaxwhiten.datasets.builders.base import STSBuilder


class Builder(STSBuilder):
    """SemEval STS 2012: 3,108 scored pairs in five subsets."""

    TASK = "STS12"
