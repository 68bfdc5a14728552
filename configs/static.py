"""Static encoders compared with model2vec's: seven STS tasks, a search, speed, size, and the effect of each step.

Command: `python -m eval.static --config configs/static.py --config.corpus=FOLDER_OF_TEXT --config.dataset=FILE`. The
results are in docs/evidence/static.md.
"""

from ml_collections import ConfigDict


def get_config():
    config = ConfigDict()
    config.models = "sentence-transformers/all-MiniLM-L6-v2,jaxwhiten-tiny"  # teachers: hub ids or local folders
    config.poolings = "auto,first_last_avg"  # of each teacher in turn
    config.ks = "256,128,64"  # dimensions
    config.corpus = ""  # a file, folder or pattern of text, one passage per line
    config.passages = 100_000  # of them whose tokens are counted; 0 for all
    config.sentences = 20_000  # drawn from these, which the teacher reads
    # What is scored. teacher, sentence-transformers: the teacher here and there. model2vec: it distils the same
    # teachers, and has to be installed. Ours at every size: zipf, whitened, rows. At the first size: codes, the table
    # of rows in fewer bytes; steps, each changed.
    config.parts = "teacher,model2vec,zipf,whitened,rows,codes,steps"
    config.tasks = "STS12,STS13,STS14,STS15,STS16,STS-B,SICK-R"  # scored on their test pairs
    config.dev = "STS-B,SICK-R"  # scored on their dev pairs, by which settings were chosen; empty for none
    config.dataset = "mrpc"  # searched; or pydocs, quora, a file in Quora's columns
    config.queries = 2000  # of those with gold, spread evenly; 0 for all
    config.timed = 20_000  # sentences of the corpus that are encoded against the clock, three times; 0 for none
    config.bootstrap = 2000  # resamples of the paired intervals; 0 for none
    config.seed = 0  # of the draw and of the resamples
    config.data_dir = ""  # where data sets lie; empty for $JAXWHITEN_DATA_DIR, or a download
    config.out = "runs/static"  # folder for the results
    return config
