"""An adapter learns a domain: finding duplicates of a question.

    python -m train.sbert --config configs/adapter.py:lora \\
      --config.data.file=DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz

After the colon: `lora`; `linear` or `bottleneck`, trained on the frozen vectors; or `full` for full fine-tuning, with
`--config.learning_rate=2e-4`; seeds by `--config.seed`. The share `data.held_out` of the questions is kept for the
test, in the output's `held_out.tsv`: groups of duplicates that share no question with the others. Their search:

    python -m eval.retrieval --config configs/quora.py --config.dataset=runs/adapter-lora/held_out.tsv \\
      --config.model=runs/adapter-lora/model --config.poolings=mean --config.ks=0 --config.max_length=32 \\
      --config.backends=faiss-flat --config.out=runs/adapter/lora-0

With `linear` and `bottleneck` the pooling is `auto`.

Seen on 2 CPU cores shared with other work, seeds 0 to 2, one epoch (162 steps): MRR@10 among held-out questions
0.4498 before; 0.7310 by full fine-tuning (1.4 to 2.6 minutes), 0.7280 by LoRA (1.8 to 2.6), 0.6819 by a matrix (5 to
15 s), 0.4902 by a bottleneck (4 s). docs/evidence/training.md has the intervals, and the effect of whitening.
"""

from configs.settings import SBERT
from jaxwhiten.errors import unknown_name

KINDS = ("lora", "linear", "bottleneck", "full")


def get_config(kind="lora"):
    if kind not in KINDS:
        raise unknown_name("kind of adapter", kind, KINDS)
    config = SBERT()
    config.model = "jaxwhiten-tiny"
    config.objective = "mnr"
    config.lora = 8 if kind == "lora" else 0
    config.adapter = kind if kind in ("linear", "bottleneck") else ""
    config.lora_projections = ("query", "key", "value", "output", "up", "down")
    config.data.file = "quora_dup_sae.tsv.gz"
    config.data.skip_bad_rows = True  # four of 15,026 begin with a quotation mark that quotes no cell
    config.data.columns = ("question1", "question2")
    config.data.held_out = 0.3
    config.max_length = 32
    config.batch_size = 64
    config.learning_rate = 2e-3
    config.dev = ""
    config.test = ()
    config.output = f"runs/adapter-{kind}"
    return config
