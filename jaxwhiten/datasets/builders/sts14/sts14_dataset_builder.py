"""SemEval STS 2014: 3,750 scored pairs in six subsets."""

from jaxwhiten.datasets.builders.base import STSBuilder


class Builder(STSBuilder):
    """SemEval STS 2014: 3,750 scored pairs in six subsets."""

    TASK = "STS14"
