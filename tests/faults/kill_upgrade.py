"""kill -9 at random moments of filling an upgrade.

`python -m tests.faults.kill_upgrade FOLDER MODEL` embeds a few texts at a time and prints how many are embedded;
`killed` starts and kills it, and looks whether what was printed is there.
"""

import random
import sys
import time
from pathlib import Path

from jaxwhiten import Encoder
from jaxwhiten.search import Upgraded, build_index, load_index
from jaxwhiten.search.header import read_header
from jaxwhiten.search.upgraded import read_upgrade, share_embedded
from tests.faults.kill import child

TEXTS = [f"text {number} of {number % 7}" for number in range(8000)]
IDS = [f"id-{number}" for number in range(len(TEXTS))]
AT_ONCE = 2


def encoders(model):
    return [Encoder.from_pretrained(model, pooling=pooling, max_length=16) for pooling in ("mean", "cls")]


def begin(folder, model):
    old = encoders(model)[0]
    index = build_index(old.encode(TEXTS), "jax", encoding=old.encoding(), documents=TEXTS, ids=IDS)
    index.save(folder / "index")


def embedded(folder):
    index = load_index(folder / "index")
    told = read_upgrade(folder / "index", index.encoding)
    return (
        0 if told is None else round(share_embedded(folder / "index", read_header(folder / "index"), told) * len(TEXTS))
    )


def killed(folder, model, kills, seed=0):
    """Texts that were embedded after each kill: at least as many as were printed before it."""
    rng, found = random.Random(seed), [0]
    for _ in range(kills):
        process = child(folder, "-m", "tests.faults.kill_upgrade", folder, model)
        time.sleep(rng.uniform(0, 0.25))
        process.kill()  # it may have embedded all texts by then
        printed = process.communicate()[0].rpartition("\n")[0].split()
        found.append(embedded(folder))
        assert found[-1] >= max(found[-2], *map(int, printed), 0)
    return found[1:]


if __name__ == "__main__":
    folder, (old, new) = Path(sys.argv[1]), encoders(sys.argv[2])
    index = load_index(folder / "index")
    new.encode(TEXTS[:AT_ONCE])
    upgraded = Upgraded(index, old, new, 10, folder=folder / "index")
    upgraded.fill(AT_ONCE)
    print("ready", flush=True)
    while upgraded.fill(AT_ONCE):
        print(round(upgraded.share * len(TEXTS)), flush=True)
