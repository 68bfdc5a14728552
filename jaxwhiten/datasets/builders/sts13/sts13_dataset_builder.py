"""SemEval STS 2013 without SMT: 1,500 scored pairs in three subsets."""

from jaxwhiten.datasets.builders.base import STSBuilder


class Builder(STSBuilder):
    """SemEval STS 2013 without SMT: 1,500 scored pairs in three subsets."""

    TASK = "STS13"
