"""The defaults of a training program, nothing changed.

    python -m train.sbert --config configs/defaults.py:sbert --config.model=FOLDER

After the colon: sbert, cross or mlm.
"""

from configs.settings import MLM, SBERT, Cross
from jaxwhiten.errors import check_name

PROGRAMS = {"sbert": SBERT, "cross": Cross, "mlm": MLM}


def get_config(program="sbert"):
    check_name("program", program, PROGRAMS)
    return PROGRAMS[program]()
