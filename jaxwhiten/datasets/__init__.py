"""Data sets: the STS tasks, NLI, the sample that ships with the package, and the user's own tables."""

from jaxwhiten.datasets.sts import STS_TASKS, Pairs, STSTask, load_sts

__all__ = ["STS_TASKS", "Pairs", "STSTask", "load_sts"]
