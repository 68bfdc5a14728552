"""Data: the user's own tables and text files, BEIR folders, and the sample that ships with the package."""

from typing import TYPE_CHECKING

from jaxwhiten._lazy import exports

if TYPE_CHECKING:
    from jaxwhiten.datasets.examples import LABELS as NLI_LABELS
    from jaxwhiten.datasets.examples import Examples, nli_triplets, text_examples
    from jaxwhiten.datasets.retrieval import RetrievalData, from_pairs, read_own
    from jaxwhiten.datasets.sts import Pairs, STSTask, load_sts, read_pairs
    from jaxwhiten.datasets.tables import Table, read_header, read_table
    from jaxwhiten.datasets.textfile import Corpus, corpus_files, numbered_lines, split_name

__getattr__, __dir__ = exports(__name__)

__all__ = ["NLI_LABELS", "Corpus", "Examples", "Pairs", "RetrievalData", "STSTask", "Table"]
__all__ += ["corpus_files", "from_pairs", "load_sts", "nli_triplets", "numbered_lines", "read_header"]
__all__ += ["read_own", "read_pairs", "read_table", "split_name", "text_examples"]
