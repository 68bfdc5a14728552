"""Another encoder over an index: stay, map, fuse, embed what is read, or embed everything; every ordered pair.

Command: `python -m eval.upgrade --config configs/upgrade.py --config.dataset=FILE`;
`experiments/upgrade.sh` makes all runs. The results are in docs/evidence/upgrade.md.
"""

from ml_collections import ConfigDict


def get_config():
    config = ConfigDict()
    # MODEL POOLING, and `whitened` where the vectors are whitened on the documents; every ordered pair is measured.
    config.encoders = (
        "jaxwhiten-tiny first_last_avg,jaxwhiten-tiny first_last_avg whitened,"
        "sentence-transformers/all-MiniLM-L6-v2 mean"
    )
    config.dataset = "pydocs"  # or mrpc, quora, a file, or one of eval/searches.py
    config.queries = 2000  # of those with gold, spread evenly; 0 for all
    config.kinds = "ridge,procrustes,cca"  # of maps; isotrieve-ridge too, where it is installed
    config.fuse = "cca"  # the map whose scores are added to the old encoder's
    config.pairs = "500,2000,5000"  # documents under both encoders that a map is fitted on
    config.candidates = "30,100"  # of the old index that are embedded on read
    config.max_length = 0  # tokens, special tokens counted; 0 for the model folder's own limit
    config.dtype = "float32"  # or bfloat16; with openvino also int8
    config.engine = "jax"  # or openvino, on CPUs
    config.bootstrap = 2000  # resamples of the paired intervals
    config.seed = 0  # of the pairs drawn and of the resamples
    config.cache = ""  # folder of the embedding cache; empty for the default one
    config.data_dir = ""  # where data sets lie; empty for $JAXWHITEN_DATA_DIR, or a download
    config.out = "runs/upgrade"  # folder for the results
    return config
