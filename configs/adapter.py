"""An adapter learns a domain: duplicate questions, which question was asked before.

    python -m train.sbert --config configs/adapter.py \\
      --config.data.file=DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz --config.output=runs/adapter-lora

`--config.adapter.kind=linear` and `bottleneck` train on the frozen vectors; `--config.adapter.kind= ` with
`--config.learning_rate=2e-4` is full fine-tuning. The share `data.held_out` of the questions is kept for the test, in
the output's `held_out.tsv`: groups of duplicates that share no question with the others. `make adapters` does all that
and searches.

Seen in a small trial, 50 steps on 3,200 pairs with a tenth of the questions held out (`--config.steps=50
--config.data.limit=3200 --config.data.held_out=0.1`), seed 0 alone, on 2 CPU cores busy with other work (LoRA 4.5
minutes, full fine-tuning 2.6, linear 23 seconds; not times to compare). MRR@10 over 1,352 questions, with its 95 %
interval: un-tuned 0.510 (0.486–0.534); bottleneck 0.524 (0.500–0.548); linear 0.631 (0.608–0.653); full fine-tuning at
2e-4 0.687 (0.665–0.708); LoRA at 2e-3, 2.5 % of the parameters, 0.705 (0.683–0.726), paired difference to full
+0.018 (+0.008 to +0.028), which may be the rates'. Whitening the un-tuned vectors on the test's own questions, without
training: 0.823 (0.806–0.840). The settings below, one epoch, and more seeds: not run here.
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
