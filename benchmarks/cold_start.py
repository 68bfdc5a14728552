"""From process start to the first vectors: ten sentences, with and without the compilation cache, beside a peer.

    python -m benchmarks.cold_start [--rounds 3]

Every measurement is a process of its own: import, load all-MiniLM-L6-v2, encode ten sentences, end. `cold` has an empty
compilation cache, `warm` the one an earlier process left. The peer is sentence-transformers on the same folder. Both
choose their device; where one takes a GPU and the other cannot, nothing is reported.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import interleave, median, ratio, save
from jaxwhiten.models import resolve_folder

OURS = """
import jax
from jaxwhiten import Encoder
encoder = Encoder.from_pretrained({folder!r}, pooling="mean")
assert encoder.encode({sentences!r}).shape == (10, 384)
print("cuda" if jax.default_backend() == "gpu" else jax.default_backend())
"""
PEER = """
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({folder!r})
assert model.encode({sentences!r}).shape == (10, 384)
print(model.device.type)
"""
SENTENCES = [f"{number} birds sit on a wire and wait for the rain to end." for number in range(10)]


def process(code: str, folder: Path, cache: str) -> str:
    """Runs a program to its end; gives the device it says it ran on."""
    environment = os.environ | {"JAXWHITEN_CACHE_DIR": cache} | {"HF_HUB_OFFLINE": "1"}
    text = code.format(folder=str(folder), sentences=SENTENCES)
    done = subprocess.run([sys.executable, "-c", text], check=True, env=environment, capture_output=True, text=True)
    return done.stdout.split()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = Path(resolve_folder("sentence-transformers/all-MiniLM-L6-v2"))
    with tempfile.TemporaryDirectory() as warm:

        def cold() -> None:
            with tempfile.TemporaryDirectory() as empty:
                process(OURS, folder, empty)

        ours, peer = process(OURS, folder, warm), process(PEER, folder, warm)
        if ours != peer:
            raise SystemExit(
                f"ours ran on {ours}, the peer on {peer}: CUDA_VISIBLE_DEVICES= JAX_PLATFORMS=cpu measures the CPU"
            )
        contestants = {
            "jaxwhiten, cold": cold,
            "jaxwhiten, warm": lambda: process(OURS, folder, warm),
            "sentence-transformers": lambda: process(PEER, folder, warm),
        }
        seconds = interleave(contestants, args.rounds, warmup=0)
    print(f"process start to ten vectors, {args.rounds} rounds in turn")
    ratios = {name: ratio(seconds, name, "sentence-transformers") for name in list(contestants)[:2]}
    for name, values in seconds.items():
        tail = f"{ratios[name]['median']:.2f}x the peer's speed" if name in ratios else ""
        print(f"  {name:24}{median(values):6.2f} s  {tail}")
    save("cold_start", {"seconds": seconds, "ratio": ratios, "device": ours})


if __name__ == "__main__":
    main()
