"""An adapter learns a domain: finding duplicates of a question.

    python -m train.sbert --config configs/adapter.py \\
      --config.data.file=DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz --config.output=runs/adapter-lora

`--config.adapter.kind=linear` and `bottleneck` train on the frozen vectors; `--config.adapter.kind= ` with
`--config.learning_rate=2e-4` is full fine-tuning. The share `data.held_out` of the questions is kept for the test, in
the output's `held_out.tsv`: groups of duplicates that share no question with the others. `make adapters` runs all of
this and the searches.

Seen on 2 CPU cores shared with other work, seeds 0 to 2, one epoch (162 steps): MRR@10 among held-out questions
0.4498 before; 0.7310 by full fine-tuning (1.4 to 2.6 minutes), 0.7280 by LoRA (1.8 to 2.6), 0.6819 by a matrix (5 to
15 s), 0.4902 by a bottleneck (4 s). docs/evidence/fine-tuning.md has the intervals, and the effect of whitening.
"""

from configs import sbert_defaults


def get_config():
    config = sbert_defaults.get_config()
    config.model = "jaxwhiten-tiny"
    config.objective = "mnr"
    config.adapter.kind = "lora"
    config.adapter.projections = ("query", "key", "value", "output", "up", "down")
    config.data.file = "quora_dup_sae.tsv.gz"
    config.data.columns = ("question1", "question2")
    config.data.held_out = 0.3
    config.max_length = 32
    config.batch_size = 64
    config.learning_rate = 2e-3
    config.dev = ""
    config.test = ()
    config.output = "runs/adapter"
    return config
