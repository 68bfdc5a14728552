"""SemEval STS 2016: 1,186 scored pairs in five subsets."""

from jaxwhiten.datasets.builders.base import STSBuilder


class Builder(STSBuilder):
    """SemEval STS 2016: 1,186 scored pairs in five subsets."""

    TASK = "STS16"
