"""An adapter learns a domain: duplicate questions, which question was asked before.

    python -m train.sbert --config configs/adapter.py \\
      --config.data.file=DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz --config.output=runs/adapter-lora

`--config.adapter.kind=linear` and `bottleneck` train on the frozen vectors; `--config.adapter.kind= ` with
`--config.learning_rate=2e-4` is full fine-tuning. The share `data.held_out` of the questions is kept for the test, in
the output's `held_out.tsv`: groups of duplicates that share no question with the others. `make adapters` does all that
and searches.

Seen in a small trial (`--config.steps=50 --config.data.limit=3200 --config.data.held_out=0.1`), seed 0 alone, on 2 CPU
cores busy with other work: docs/finetune.md has MRR@10 before and after beside full fine-tuning; LoRA took 4.5 minutes,
full fine-tuning 2.6, linear 23 seconds, which are not times to compare. The settings below, one epoch, and more seeds:
not run here.
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
