"""Retrieval of duplicate questions on Quora, the paper's second experiment: quality, time and memory.

Command: `python -m eval.retrieval --config configs/quora.py --config.data_dir=DIR` with `quora_duplicate_questions.tsv`
in DIR (without a folder it is downloaded). `experiments/reproduce.sh` has the paper's rows. Lists are comma-separated.
Time and score: not run here (the file needs a network).
"""

from ml_collections import ConfigDict

from configs import KNOBS


def get_config():
    config = ConfigDict()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"  # a hub id or a local folder
    config.revision = ""  # commit, tag or branch on the hub; empty for the newest
    config.versus = ""  # another model: raw rows are compared with its raw vectors, query by query
    # quora, mrpc, pydocs, a search of eval/searches.py, a folder as BEIR's, or a file (docs/guides/score.md).
    config.dataset = "quora"
    config.poolings = "mean,first_last_avg"  # names as in configs/sts.py
    # none; target: fitted on documents and queries (transductive); documents: on these alone; nli: on NLI sentences.
    config.whitening = "none,target"
    config.ks = "0,256,128"  # dimensions kept; 0 is the model's own
    config.update(KNOBS)  # beta, gamma and others of the fit: one value or several of each
    config.backends = "faiss-ivf,jax"  # also faiss-flat, faiss-hnsw, faiss-gpu-flat, faiss-gpu-ivf
    config.nlist = 1024  # inverted lists; lowered with a note where the documents are too few
    config.nprobe = 5  # inverted lists visited per query
    config.exact_queries = 10_000  # searched exactly as well, for an index's recall; 0 for all
    config.single_queries = 200  # searched one by one, for the median and the 99th percentile
    config.bootstrap = 10_000  # resamples of the bootstrap intervals of the MRR; 0 for none
    config.examples = ()  # queries shown with their first results when the run ends
    config.rerank = ""  # folder of a cross-encoder that re-ranks the first results; empty for none
    config.rerank_depth = 100  # results that it re-ranks
    config.rerank_queries = 1000  # queries with gold whose results it re-ranks; 0 for all
    # Controls without the encoder, fitted like the whitenings: tfidf, tfidf-pieces (of the encoder's tokens), bm25,
    # layer0 (the pooling layers:0), centred (the mean taken out, nothing scaled); empty for none.
    config.baselines = ""
    config.max_length = 64  # tokens, special tokens counted, as in the paper; 0 for the model folder's own limit
    config.dtype = "float32"  # or bfloat16: what matrix products run in; with openvino also int8
    config.engine = "jax"  # or openvino, on CPUs
    config.batch_size = 0  # sentences per batch at most, for the NLI sentences; 0 leaves it to the encoder
    config.cache = ""  # folder of the embedding cache; empty for the default one
    config.seed = 0  # of the bootstrap
    config.data_dir = ""  # where the data lies; empty for $JAXWHITEN_DATA_DIR, or a download
    config.out = "runs/quora"  # folder for the results
    return config
