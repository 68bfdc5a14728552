"""Fine-tunes an encoder into a sentence encoder.

    python -m train.sbert --config configs/nli.py
    python -m train.sbert --config configs/stsb.py --config.batch_size=32 --config.output=runs/stsb-32

The output folder holds the checkpoints, metrics.jsonl, TensorBoard events, loss.png and, when the run is finished,
results.json and `model/`: a folder for `Encoder.from_pretrained`, `eval.sts` and sentence-transformers.
SIGTERM saves a checkpoint and ends the program with exit code 143, Ctrl-C with 130; the same command resumes the run.
"""

from __future__ import annotations

import time
from pathlib import Path

from configs import launch
from configs.settings import SBERT, Stages
from jaxwhiten import io, training
from jaxwhiten.export import save_trained
from jaxwhiten.runtime import distributed
from train import adapters, objectives
from train.common import options_of, scored_pairs, splits, sts_score, write_results
from train.examples import drawn, load_examples


def main(config: SBERT | Stages) -> None:
    """Trains as the config specifies: one run, or several stages one after the other."""
    runs = config.runs() if isinstance(config, Stages) else [config]
    for run in runs:
        options_of(run)
    for run in runs:
        train_sentences(run)


def train_sentences(config: SBERT) -> None:
    """Runs one training, from its start or its latest checkpoint to the exported model."""
    start = time.perf_counter()
    output = Path(config.output)
    io.check_folder(output / "model")  # before the work of training it
    objective = objectives.find_objective(config.objective)
    options = options_of(config)
    encoder = training.load_bare(config.model, config.pooling, config.max_length or None)
    examples = load_examples(config.data, objective)
    held_out = None
    if config.data.held_out:
        objective.check(list(examples.columns), examples.label_kind)
        examples, rows = examples.hold_out(config.data.held_out)
        held_out = training.HeldOut(rows)
    if config.data.limit:
        examples = drawn(examples, config.data.limit, config.seed)
    options, unused = objectives.own_settings(objective, options)
    for name in unused:
        print(f"settings.{name} is not used by objective {objective.name}: ignored")
    if config.adapter:
        objective = adapters.on_vectors(objective, config.adapter, config.adapter_rank)
    tuned = training.fine_tune(
        encoder,
        examples,
        objective,
        options,
        output,
        scores={name: sts_score(scored_pairs(config, *split)) for name, split in splits(config).items()},
        best=f"{config.dev} dev" if config.dev else None,
        record={name: getattr(config, name) for name in ("max_length", "pooling", "dev", "adapter", "adapter_rank")},
        model_folder=output / "model",
    )
    if distributed.is_writer():
        if held_out is not None:
            training.write_held_out(output / "held_out.tsv", held_out)
        record = {"recipe": tuned.recipe, "scores": tuned.after, "before": tuned.before}
        save_trained(output / "model", tuned.encoder, base_model=config.model, name=output.name, **record)
    scores = {"before": tuned.before, "after": tuned.after}
    write_results(config, scores, {"step": tuned.step}, start)


if __name__ == "__main__":
    launch.run(main, "configs/nli.py", SBERT, Stages)
