"""Trains a masked language model: from random weights, or on from an encoder, on text of one's own.

    python -m train.mlm --config configs/mlm_small.py --config.data=TEXT
    python -m train.mlm --config configs/mlm_adapt.py --config.data=TEXT --config.model=FOLDER

The output folder holds the checkpoints, metrics.jsonl, TensorBoard events, loss.png and, when the run is finished,
results.json, report.html and `model/`: a folder for `Encoder.from_pretrained`, `train.sbert` and transformers'
`AutoModelForMaskedLM`. SIGTERM or Ctrl-C saves and ends the program with exit code 0; the same command goes on from
there.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from ml_collections import ConfigDict

from jaxwhiten import io, report
from jaxwhiten.commands.launch import run
from jaxwhiten.datasets import Corpus, corpus_files
from jaxwhiten.errors import InputError
from jaxwhiten.models import EncoderConfig, MaskedLM, init_masked_lm, load_masked_lm, save_masked_lm, with_rates
from jaxwhiten.text.tokenization import copy_tokenizer
from jaxwhiten.text.vocabulary import cached_wordpiece
from jaxwhiten.training import (
    RunOptions,
    TokenCorpus,
    corpus_key,
    hardware,
    make_optimizer,
    make_schedule,
    mask_rules,
    masked_batches,
    masked_evaluator,
    masked_loss,
    masked_model_card,
    median_rate,
    split_masked_lm,
    tokenize_corpus,
    train,
)

# What is shown or kept, not computed: a resumed run may change it. The text is known by its content.
SHOWN_ONLY = ("data", "output", "log_every", "save_every", "keep", "progress", "export_dtype")


def main(config: ConfigDict) -> None:
    """One run, from its start or its latest checkpoint to the exported model."""
    text = Corpus(corpus_files(config.data), skip_bad_rows=config.skip_bad_rows)
    model, tokenizer = load(config, text)
    if not 4 <= config.block_length <= model.config.longest_input:
        raise InputError(
            f"block_length is {config.block_length}; this encoder takes 4 to {model.config.longest_input} tokens."
        )
    corpus = tokenize_corpus(
        text, tokenizer, config.block_length, held_out_share=config.held_out, progress=config.progress
    )
    rules = mask_rules(tokenizer, **config.mask)
    batches = masked_batches(
        corpus.train,
        rules,
        batch_size=config.batch_size,
        seed=config.seed,
        process=(jax.process_index(), jax.process_count()),
    )
    steps = config.steps or config.epochs * batches.per_epoch
    params, rebuild = split_masked_lm(model)
    print_sizes(corpus, params, batches.per_epoch, steps, config)

    schedule = make_schedule(config.learning_rate, steps, warmup=config.warmup, decay=config.decay)
    optimizer = make_optimizer(
        schedule,
        name=config.optimizer,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        b2=config.b2,
        eps=config.eps,
    )
    recipe = {name: value for name, value in config.to_dict().items() if name not in SHOWN_ONLY}
    recipe |= {"dtype": compute_dtype(config.dtype), "text": corpus.key, "steps": steps}
    score = functools.partial(masked_evaluator, rebuild, corpus.held_out, rules)
    trained = train(
        config.output,
        params,
        masked_loss(rebuild),
        batches,
        optimizer,
        schedule,
        steps=steps,
        batch_size=config.batch_size,
        accumulate=config.accumulate,
        seed=config.seed,
        recipe=recipe,
        evaluate=score(blocks=config.evaluate_blocks),
        options=RunOptions(
            evaluate_every=config.evaluate_every,
            save_every=config.save_every,
            log_every=config.log_every,
            keep=config.keep,
            progress=config.progress,
            unit="tokens",
            per_row=config.block_length,
        ),
    )
    if trained.finished:
        finish(config, rebuild(trained.params), tokenizer, recipe, steps, score()(trained.params))


def load(config: ConfigDict, text: Corpus) -> tuple[MaskedLM, Path]:
    """The model to start from, and the folder of its tokenizer."""
    dtype = compute_dtype(config.dtype)
    if config.model:
        model, folder, has_head = load_masked_lm(config.model, seed=config.seed, dtype=dtype, remat=config.remat)
        print(f"{config.model}: goes on from its weights" + ("" if has_head else "; its head starts at random"))
        return with_rates(model, config.dropout), folder
    print("vocabulary: trained on the text, or read from the cache")
    folder = cached_wordpiece(
        lambda: text.train_blocks(1024, config.held_out),
        corpus_key(text, config.held_out),
        max_length=config.sizes.max_positions,
        **config.vocabulary,
    )
    vocab_size = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    sizes = EncoderConfig(vocab_size=vocab_size, **config.sizes)
    model = init_masked_lm(sizes, seed=config.seed, dtype=dtype, remat=config.remat)
    return with_rates(model, config.dropout), folder


def compute_dtype(name: str) -> str:
    """What matrix products run in."""
    if name != "auto":
        return name
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"


def count(params: Any) -> int:
    """Numbers in a tree of arrays."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def print_sizes(corpus: TokenCorpus, params: Any, per_epoch: int, steps: int, config: ConfigDict) -> None:
    """What is about to be trained on what."""
    passages, out = corpus.passages
    print(f"{passages} passages, {corpus.train.tokens} tokens; held out {out}, {corpus.held_out.tokens} tokens")
    if corpus.skipped:
        print(f"{corpus.skipped} bad lines left out")
    tokens = steps * config.batch_size * config.block_length
    print(
        f"{count(params) / 1e6:.2f} million parameters; {per_epoch} batches an epoch, {steps} steps, "
        f"{tokens / 1e6:.1f} million tokens"
    )


def finish(
    config: ConfigDict,
    model: MaskedLM,
    tokenizer: Path,
    recipe: dict[str, Any],
    steps: int,
    scores: dict[str, float],
) -> None:
    """Writes the finished model's folder with its card, and the results."""
    if jax.process_index() != 0:
        return
    output, tokens = Path(config.output), steps * config.batch_size * config.block_length
    rate = median_rate(output, "tokens")
    hours = tokens / rate / 3600 if rate else 0.0
    facts = {
        "parameters": f"{count(nnx.state(model, nnx.Param)):,}",
        "tokens seen": f"{tokens:,}",
        "hours": f"{hours:.2f} at {rate:,.0f} tokens/s",
        "hardware": hardware(),
    }
    card = masked_model_card(output.name, base_model=config.model, facts=facts, scores=scores, recipe=recipe)
    save_masked_lm(model, output / "model", dtype=config.export_dtype)
    copy_tokenizer(tokenizer, output / "model")
    io.write_text(output / "model" / "README.md", card)
    results = {"scores": scores, "step": steps, "tokens": tokens, "hours": round(hours, 3), "hardware": hardware()}
    results |= {"tokens_per_second": round(rate), "seed": config.seed}
    io.write_json(output / "results.json", results)
    report.write_training(
        output,
        f"train.mlm: {config.model or 'from random weights'}",
        scores={"at the end": scores},
        recipe=recipe,
        facts={**facts, "seed": config.seed},
    )
    print(", ".join(f"{name} {value:.3f}" for name, value in scores.items()))
    print(f"{output}/model written from step {steps}")


if __name__ == "__main__":
    run(main, "configs/mlm_small.py")
