"""The loss of small codes on one task: codes of 24, 48 and 96 bytes beside their peers, fitted on the documents.

Command: `python -m eval.codes --config configs/code_tasks.py --config.dataset=NAME`, for the names of eval/searches.py;
`make codes` runs them all. The tables are in docs/evidence/codes.md.
"""

from configs import codes


def get_config():
    config = codes.get_config()
    config.pooling = "auto"
    config.dataset = "snli"
    config.queries = 3000
    config.codes = "spectrum,pq,opq,rabitq,eden,rabitqlib,turbovec,int8,ubinary"
    config.bytes = "24,48,96"
    config.opq_bytes = "24"
    config.seeds = 5
    config.rescore = 40  # four times ten, as sentence-transformers does
    config.timed = 0
    config.out = "runs/tasks"
    return config
