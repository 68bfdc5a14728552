"""SemEval STS 2015: 3,000 scored pairs in five subsets."""

from jaxwhiten.datasets.builders.base import STSBuilder


class Builder(STSBuilder):
    """SemEval STS 2015: 3,000 scored pairs in five subsets."""

    TASK = "STS15"
