"""Quality against bytes: every code of the documents of a search, at equal bytes, fitted on them and on other text.

Command: `python -m eval.codes --config configs/codes.py --config.dataset=FILE --config.outside=FOLDER_OF_TEXT`; without
`outside` everything is fitted on the documents. The results are in docs/evidence/codes.md.
"""

from ml_collections import ConfigDict


def get_config():
    config = ConfigDict()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"  # a hub id or a local folder
    config.revision = ""  # commit, tag or branch on the hub
    config.pooling = "mean"  # one of jaxwhiten.POOLINGS
    config.dataset = "pydocs"  # or mrpc, quora, a file, or one of eval/searches.py: snli, wikipedia-7000, …
    config.queries = 2000  # of those with gold, spread evenly; 0 for all
    config.seeds = 1  # sets of codebooks of the spectrum code, over which scores are averaged
    config.outside = ""  # a file, folder or pattern of text, one passage per line, whose first sentences are fitted on
    config.outside_rows = 100_000  # sentences of it, at most
    config.gamma = "auto"  # powers of the scaling; auto: 0.25, or 1 for an encoder that was not fine-tuned
    # float16 of whitened, reduced (pca), cut (truncation) and randomly projected vectors; computed and trained codes.
    config.codes = "spectrum,pq,opq,rabitq,eden,sq4,sq8,int8,ubinary,whitening,pca,truncation,random-projection"
    config.bytes = "8,16,24,32,48,64,96,192"  # per vector
    config.opq_bytes = "8,16,24,32,48,64"  # those of them at which opq is trained, which takes longest
    config.timed = 2000  # queries of the search whose time is taken; 0 for none
    config.rescore = 100  # first results that are scored again by float16 vectors; 0 for none
    config.tasks = ""  # STS tasks scored on decoded vectors, such as STS-B,SICK-R; empty for none
    config.classify = ""  # MRPC, SNLI: pairs of decoded vectors classified by logistic regression; empty for none
    config.max_length = 0  # tokens, special tokens counted; 0 for the model folder's own limit
    config.dtype = "float32"  # or bfloat16; with openvino also int8
    config.engine = "jax"  # or openvino, on CPUs
    config.bootstrap = 2000  # resamples of the paired intervals
    config.seed = 0  # of the resamples
    config.cache = ""  # folder of the embedding cache; empty for the default one
    config.data_dir = ""  # where data sets lie; empty for $JAXWHITEN_DATA_DIR, or a download
    config.out = "runs/codes"  # folder for the results
    return config
