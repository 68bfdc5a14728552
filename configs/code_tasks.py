"""The loss of small codes on one task: spectrum codes of 24, 48 and 96 bytes, fitted on the documents or other text.

Command: `python -m eval.codes --config configs/code_tasks.py --config.dataset=NAME --config.outside=FILE`, for the
names of eval/searches.py; `make code-tasks` runs them all. The table is in
docs/evidence/codes.md.
"""

from configs import codes


def get_config():
    config = codes.get_config()
    config.dataset = "snli"
    config.queries = 3000
    config.outside_rows = 20_000
    config.codes = "spectrum"
    config.bytes = "24,48,96"
    config.rescore = 0
    config.timed = 0
    config.out = "runs/tasks"
    return config
