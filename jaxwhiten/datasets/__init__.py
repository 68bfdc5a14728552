"""Data sets: STS tasks, retrieval data, the sample that ships with the package, and the user's own tables."""

from typing import TYPE_CHECKING

from jaxwhiten.lazy import exports

if TYPE_CHECKING:
    from jaxwhiten.datasets.examples import Examples, nli_triplets, text_examples, write_pairs
    from jaxwhiten.datasets.nli import LABELS as NLI_LABELS
    from jaxwhiten.datasets.nli import label_codes
    from jaxwhiten.datasets.protocol import STS_TASKS, Pairs, STSTask, data_folder
    from jaxwhiten.datasets.remote import fetch
    from jaxwhiten.datasets.retrieval import RetrievalData, from_pairs, read_own
    from jaxwhiten.datasets.sts import load_sts, read_pairs
    from jaxwhiten.datasets.tables import Table, read_header, read_table
    from jaxwhiten.datasets.textfile import Corpus, corpus_files, held_out, read_lines, split_name

__getattr__, __dir__ = exports(__name__)

__all__ = ["STS_TASKS", "Corpus", "Examples", "Pairs", "RetrievalData", "STSTask", "Table"]
__all__ += ["corpus_files", "data_folder", "from_pairs", "held_out", "label_codes", "load_sts"]
__all__ += ["fetch", "read_header", "read_lines", "read_own", "read_pairs", "read_table", "split_name"]
__all__ += ["NLI_LABELS", "nli_triplets", "text_examples", "write_pairs"]
