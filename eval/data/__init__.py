"""The papers' data sets, from a folder or downloaded once: STS tasks, NLI, MRPC and Quora's question pairs."""

from eval.data.nli import NLIRows, load_nli
from eval.data.protocol import STS_TASKS, data_folder
from eval.data.quora import load_quora, read_quora
from eval.data.remote import fetch
from eval.data.sts import load_sts

__all__ = ["STS_TASKS", "NLIRows", "data_folder", "fetch", "load_nli", "load_quora", "load_sts"]
__all__ += ["read_quora"]
