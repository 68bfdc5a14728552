"""Data sets: the STS tasks, NLI, the sample that ships with the package, and the user's own tables."""

from jaxwhiten.datasets.nli import NLIRows, NLISource, load_nli
from jaxwhiten.datasets.sts import STS_TASKS, Pairs, STSTask, load_sts
from jaxwhiten.datasets.tables import Table, read_table

__all__ = ["STS_TASKS", "NLIRows", "NLISource", "Pairs", "STSTask", "Table", "load_nli", "load_sts", "read_table"]
