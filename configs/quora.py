"""Retrieval of duplicate questions on Quora, the paper's second experiment: quality, time and memory.

Command: `python -m eval.retrieval --config.data_dir=DIR` with `quora_duplicate_questions.tsv` in DIR (without a folder
it is downloaded), or `--config.dataset=FILE` for any file in Quora's columns.

The paper's rows, where there is a hub and NLI data:
`python -m eval.retrieval --config.model=bert-base-uncased --config.poolings=first_last_avg
--config.whitening=none,nli,target --config.ks=0,256 --config.backends=faiss-ivf`

Lists are comma-separated. Time and score: not run here (the file needs a network).
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The paper's index, and exact search beside it."""
    return ConfigDict(
        {
            # A hub id or a local folder.
            "model": "sentence-transformers/all-MiniLM-L6-v2",
            "revision": "",
            # quora, mrpc, pydocs, or a file in Quora's columns.
            "dataset": "quora",
            "poolings": "mean,first_last_avg",
            # none; target: fitted on documents and queries (transductive); nli: fitted on NLI sentences.
            "whitening": "none,target",
            # Dimensions kept; 0 is the model's own.
            "ks": "0,256,128",
            # x̃ = (x − βμ) U Λ^(−γ/2): one value or several; 1 and 1 is whitening, 1 and 0 is PCA.
            "beta": "1",
            "gamma": "1",
            # faiss-flat, faiss-ivf, faiss-hnsw, faiss-ivfpq, faiss-gpu-flat, faiss-gpu-ivf, jax.
            "backends": "faiss-ivf,jax",
            # Of the inverted lists; lowered with a note where the documents are too few.
            "nlist": 1024,
            "nprobe": 5,
            # Queries that are searched exactly as well, to tell an index's recall; 0 for all.
            "exact_queries": 10_000,
            # Queries that are searched one by one, for the median and the 99th percentile.
            "single_queries": 200,
            # Resamples of the bootstrap intervals of the MRR; 0 for none.
            "bootstrap": 10_000,
            # Queries shown with their first results when the run ends.
            "examples": (),
            "max_length": 64,
            "dtype": "float32",
            # Sentences per batch at most, for the NLI sentences; 0 leaves it to the encoder.
            "batch_size": 0,
            # Folder of the embedding cache; empty for the default one.
            "cache": "",
            "seed": 0,
            "data_dir": "",
            "out": "runs/quora",
        }
    )
