"""The table of BERT-whitening on seven STS tasks: raw and whitened, at several dimensions, for one encoder.

Command: `python -m eval.sts --config.data_dir=DIR` (or `$JAXWHITEN_DATA_DIR`; without either the data is downloaded).
`experiments/reproduce.sh` has the paper's rows. Lists are comma-separated.
Seen on 2 CPU cores, float32, with all seven tasks and 35,163 NLI rows: 4 minutes 6 seconds in all, 1.34 GB at the
peak. Average of the seven tasks (wmean), mean pooling: 78.77 raw, 76.09 target, 75.43 nli at k = 384; cls pooling:
72.82 raw, 74.88 target. Not run here: the paper's encoders, which need a hub.
"""

from ml_collections import ConfigDict

from configs import KNOBS


def get_config():
    config = ConfigDict()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"  # a hub id or a local folder
    config.revision = ""  # commit, tag or branch on the hub; empty for the newest
    # Names of jaxwhiten.POOLINGS, and layers:I+J, layers:*, ditto:LAYER+HEAD, promptbert and idf.
    config.poolings = "cls,mean,first_last_avg,embeddings_last_avg,last2avg"
    # none; target: fitted on the task's own sentences (transductive); nli: fitted on NLI sentences.
    config.whitening = "none,target,nli"
    config.ks = "0,256,128"  # dimensions kept; 0 is the model's own
    config.update(KNOBS)  # beta, gamma and others of the fit: one value or several of each
    # Methods other than whitening, by their names in eval.methods, fitted like target; empty for none.
    config.methods = ""
    # Whether the geometry of the vectors (IsoScore, uniformity, hubness and others) is measured as well.
    config.geometry = False
    # Whether pairs scored 4 and more are searched for as well: Hits@1, Hits@3 and MRR, as in EvalRank.
    config.ranking = False
    # Or sts_sample, the pairs that ship with the package.
    config.tasks = "STS12,STS13,STS14,STS15,STS16,STS-B,SICK-R"
    config.aggregate = "wmean"  # shown in the table; or mean, all: all three are stored
    # Controls without the encoder, fitted like the whitenings: tfidf, tfidf-pieces (of the encoder's tokens), bm25,
    # layer0 (the pooling layers:0), centred (the mean taken out, nothing scaled); empty for none.
    config.baselines = ""
    config.max_length = 64  # tokens, special tokens counted, as in the paper; 0 for the model folder's own limit
    config.dtype = "float32"  # or bfloat16: what matrix products run in; with openvino also int8
    config.engine = "jax"  # or openvino, on CPUs
    config.batch_size = 0  # sentences per batch at most; 0 leaves it to the encoder
    config.bootstrap = 1000  # resamples of the bootstrap intervals; 0 for none
    config.seed = 0  # of the bootstrap
    config.data_dir = ""  # where the data lies; empty for $JAXWHITEN_DATA_DIR, or a download
    config.out = "runs/sts"  # folder for the results
    return config
