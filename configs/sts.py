"""The table of BERT-whitening on seven STS tasks: raw and whitened, at several dimensions, for one encoder.

Command: `python -m eval.sts --config.data_dir=DIR` (or `$JAXWHITEN_DATA_DIR`; without either the data is downloaded).

The paper's setting, where there is a hub:
`python -m eval.sts --config.model=bert-base-uncased --config.poolings=first_last_avg --config.ks=0,256`

Lists are comma-separated.

Seen on 2 CPU cores, float32, with all seven tasks and 35,163 NLI rows: 4 minutes 6 seconds in all, 1.34 GB at the
peak. Average of the seven tasks (wmean), mean pooling: 78.77 raw, 76.09 target, 75.43 nli at k = 384; cls pooling:
72.82 raw, 74.88 target. Not run here: the paper's encoders, which need a hub.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The default table: 5 poolings × (none + target and nli at 3 dimensions)."""
    return ConfigDict(
        {
            # A hub id or a local folder.
            "model": "sentence-transformers/all-MiniLM-L6-v2",
            "revision": "",
            "poolings": "cls,mean,first_last_avg,embeddings_last_avg,last2avg",
            # none; target: fitted on the task's own sentences (transductive); nli: fitted on NLI sentences.
            "whitening": "none,target,nli",
            # Dimensions kept; 0 is the model's own.
            "ks": "0,256,128",
            # x̃ = (x − βμ) U Λ^(−γ/2): one value or several; 1 and 1 is whitening, 1 and 0 is PCA.
            "beta": "1",
            "gamma": "1",
            # Methods beside whitening, by their names in jaxwhiten.methods, fitted as target is; empty for none.
            "methods": "",
            # Whether the geometry of the vectors (IsoScore, uniformity, hubness and others) is measured as well.
            "geometry": False,
            "tasks": "STS12,STS13,STS14,STS15,STS16,STS-B,SICK-R",
            # Which aggregate the table shows: wmean, mean or all. All three are stored.
            "aggregate": "wmean",
            "max_length": 64,
            "dtype": "float32",
            # Sentences per batch at most; 0 leaves it to the encoder.
            "batch_size": 0,
            # Resamples of the bootstrap intervals; 0 for none.
            "bootstrap": 1000,
            "seed": 0,
            "data_dir": "",
            "out": "runs/sts",
        }
    )
