"""Quality against bytes: codes of 24, 48 and 96 bytes beside their peers, at equal bytes, on one search.

Command: `python -m eval.codes --config configs/codes.py --config.dataset=NAME`, for the names of eval/searches.py, a
file or a folder; `experiments/codes.sh` runs them all. The tables are in docs/evidence/codes.md.
"""

from ml_collections import ConfigDict


def get_config():
    config = ConfigDict()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"  # a hub id or a local folder
    config.revision = ""  # commit, tag or branch on the hub
    config.pooling = "auto"  # the folder's own, or one of jaxwhiten.POOLINGS
    config.dataset = "snli"
    config.queries = 3000  # of those with gold, spread evenly; 0 for all
    config.seeds = 5  # sets of codebooks of the spectrum code, over which scores are averaged
    config.outside = ""  # a file, folder or pattern of text, one passage per line, whose first sentences are fitted on
    config.outside_rows = 100_000  # sentences of it, at most
    config.gamma = "auto"  # γ of whitenings before the codes, or none; auto: none for fine-tuned encoders, else 1
    config.codes = "spectrum,scalar,pq,opq,lsq,rabitq,eden,rabitqlib,turbovec,remex,turboquant_pro,int8,ubinary"
    config.bytes = "24,48,96"  # per vector
    config.lsq_bytes = "0"  # sizes of lsq, whose training takes minutes per 1,000 documents at 24 bytes; 0: none
    config.rescore = (
        40  # first results scored again by float16 vectors, four times ten as sentence-transformers does; 0: none
    )
    config.tasks = ""  # STS tasks scored on decoded vectors, such as STS-B,SICK-R; empty for none
    config.classify = ""  # MRPC, SNLI: pairs of decoded vectors classified by logistic regression; empty for none
    config.max_length = 0  # tokens, special tokens counted; 0 for the model folder's own limit
    config.dtype = "float32"  # or bfloat16; with openvino also int8
    config.engine = "jax"  # or openvino, on CPUs
    config.bootstrap = 2000  # resamples of the paired intervals
    config.seed = 0  # of the resamples
    config.cache = ""  # folder of the embedding cache; empty for the default one
    config.data_dir = ""  # where data sets lie; empty for $JAXWHITEN_DATA_DIR, or a download
    config.out = "runs/tasks"  # folder for the results
    return config
