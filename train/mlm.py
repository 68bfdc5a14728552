"""Trains a masked language model on the user's text, from random weights or from an encoder.

    python -m train.mlm --config configs/mlm_small.py --config.data=TEXT
    python -m train.mlm --config configs/mlm_adapt.py --config.data=TEXT --config.model=FOLDER

The output folder holds the checkpoints, metrics.jsonl, TensorBoard events, loss.png and, when the run is finished,
results.json and `model/`: a folder for `Encoder.from_pretrained`, `train.sbert` and transformers'
`AutoModelForMaskedLM`. SIGTERM saves a checkpoint and ends the program with exit code 143, Ctrl-C with 130; the same
command resumes the run.
"""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from configs import launch
from configs.settings import MLM
from eval.machine import devices
from jaxwhiten import io, training
from jaxwhiten.datasets import Corpus, corpus_files
from jaxwhiten.errors import InputError
from jaxwhiten.models import EncoderConfig
from jaxwhiten.runtime import distributed
from jaxwhiten.text import copy_tokenizer
from jaxwhiten.training.log import read_metrics
from train import corpus as corpora
from train import masking
from train.cards import masked_model_card
from train.common import count, options_of
from train.masked import MaskedLM, load_masked_lm, save_masked_lm
from train.vocabulary import save_wordpiece, train_wordpiece

# Settings that determine the result, in addition to the options of training.
OWN = ("model", "held_out", "sizes", "vocabulary", "block_length", "mask", "dropout", "evaluate_blocks")


def main(config: MLM) -> None:
    """Runs one training, from its start or its latest checkpoint to the exported model."""
    if config.dtype == "auto":
        config.dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    options = options_of(config)
    text = Corpus(corpus_files(config.data), skip_bad_rows=config.skip_bad_rows)
    model, tokenizer = load(config, text)
    if not 4 <= config.block_length <= model.config.longest_input:
        raise InputError(
            f"block_length is {config.block_length}; this encoder takes 4 to {model.config.longest_input} tokens."
        )
    corpus = corpora.tokenize_corpus(
        text, tokenizer, config.block_length, held_out_share=config.held_out, progress=config.progress
    )
    rules = masking.mask_rules(tokenizer, **dataclasses.asdict(config.mask))
    batches = masking.masked_batches(corpus.train, rules, batch_size=config.batch_size, seed=config.seed)
    options = options.resolved(batches.per_epoch)
    steps = options.steps
    params, rebuild = training.split_encoder(model)
    passages, held_out = corpus.passages
    sizes = [len(side.flat) for side in (corpus.train, corpus.held_out)]
    print(f"{passages} passages, {sizes[0]} tokens; held out {held_out}, {sizes[1]} tokens")
    if corpus.skipped:
        print(f"{corpus.skipped} invalid lines skipped")
    tokens = steps * config.batch_size * config.block_length
    print(f"{count(params) / 1e6:.2f} million parameters; {tokens / 1e6:.1f} million tokens")
    print(f"{batches.per_epoch} batches per epoch, {steps} steps")

    io.check_folder(Path(config.output) / "model")  # before the work of training it
    # The text is known by its content, not by its place.
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name in OWN}
    recipe = {**settings, **options.record(), "text": corpus.key}
    score = masking.masked_evaluator(rebuild, corpus.held_out, rules, blocks=config.evaluate_blocks)
    plan = training.Plan(params, masking.masked_loss(rebuild), rebuild)
    unit = ("tokens", config.block_length)
    trained = training.run_plan(config.output, plan, batches, options, recipe, evaluate=score, unit=unit)
    scores = masking.masked_evaluator(rebuild, corpus.held_out, rules)(trained.params)
    finish(config, rebuild(trained.params), tokenizer, recipe, scores)


def load(config: MLM, text: Corpus) -> tuple[MaskedLM, Path]:
    """The model to start from, and the folder of its tokenizer."""
    options = {"seed": config.seed, "dtype": config.dtype, "remat": config.remat}
    if config.model:
        model, folder, has_head = load_masked_lm(config.model, **options)
        print(f"{config.model}: continues from its weights" + ("" if has_head else "; its head is newly initialized"))
        return masking.with_rates(model, config.dropout), folder
    print("vocabulary: trained on the text")
    tokens = train_wordpiece(
        lambda: corpora.train_blocks(text, 1024, config.held_out), **dataclasses.asdict(config.vocabulary)
    )
    length = config.sizes.max_positions
    folder = Path(config.output) / "tokenizer"
    if distributed.is_writer():
        save_wordpiece(tokens, folder, max_length=length, lower_case=config.vocabulary.lower_case)
    distributed.gather(None)  # the others read it
    sizes = EncoderConfig(vocab_size=len(tokens), **dataclasses.asdict(config.sizes))
    return masking.with_rates(masking.init_masked_lm(sizes, **options), config.dropout), folder


def median_rate(folder: Path) -> float:
    """Median tokens per second over a run's log, so that pauses and evaluations do not count; 0.0 without rates."""
    rates = [float(rate) for row in read_metrics(folder) if (rate := row.get("tokens_per_second"))]
    if rates:
        return statistics.median(rates)
    return 0.0


def finish(config: MLM, model: MaskedLM, tokenizer: Path, recipe: dict[str, Any], scores: dict[str, float]) -> None:
    """Writes the finished model's folder with its card, and the results."""
    if not distributed.is_writer():
        return
    output = Path(config.output)
    steps = recipe["steps"]
    tokens = steps * config.batch_size * config.block_length
    rate = median_rate(output)
    hours = 0.0
    if rate:
        hours = tokens / rate / 3600
    machine = devices()
    facts = {
        "parameters": f"{count(nnx.state(model, nnx.Param)):,}",
        "tokens seen": f"{tokens:,}",
        "hours": f"{hours:.2f} at {rate:,.0f} tokens/s",
        "hardware": machine,
    }
    card = masked_model_card(output.name, base_model=config.model, facts=facts, scores=scores, recipe=recipe)
    with io.whole_folder(output / "model") as folder:
        save_masked_lm(model, folder, dtype=config.export_dtype)
        copy_tokenizer(tokenizer, folder)
        io.write_text(folder / "README.md", card)
    results = {"scores": scores, "step": steps, "tokens": tokens, "hours": round(hours, 3), "hardware": machine}
    results |= {"tokens_per_second": round(rate), "seed": config.seed}
    io.write_json(output / "results.json", results)
    print(", ".join(f"{name} {value:.3f}" for name, value in scores.items()))
    print(f"{output}/model written from step {steps}")


if __name__ == "__main__":
    launch.run(main, "configs/mlm_small.py", MLM)
