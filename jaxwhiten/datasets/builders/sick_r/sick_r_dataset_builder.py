"""SICK relatedness: 4,500 train, 500 dev and 4,927 test pairs, scored 1 to 5."""

from jaxwhiten.datasets.builders.base import STSBuilder


class Builder(STSBuilder):
    """SICK relatedness: 4,500 train, 500 dev and 4,927 test pairs, scored 1 to 5."""

    TASK = "SICK-R"
