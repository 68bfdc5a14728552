"""kill -9 at random moments of saving a model folder.

`python -m tests.faults.kill_saving FOLDER MODEL` saves two encoders in turn into FOLDER/out for ever;
`killed` starts and kills it, and compares the bytes of the folder with those of the one and the other.
"""

import random
import sys
from pathlib import Path

from jaxwhiten import Encoder, io
from jaxwhiten.models import resolve_folder
from tests.faults import test_folders
from tests.faults.kill import child, kill_after


def savers(model):
    raw = Encoder.from_pretrained(model, pooling="mean", max_length=32)
    return [raw.with_whitening(test_folders.whitening(k)).save for k in (4, 8)]


def digest(folder):
    return io.content_key([(str(path), data.hex()) for path, data in sorted(test_folders.contents(folder).items())])


def killed(folder, model, kills, seed=0):
    """How often the one and the other folder were found, and how many temporary folders the kills left."""
    rng, found, left, whole = random.Random(seed), [0, 0], 0, {}
    for _ in range(kills):
        process = child(folder, "-m", "tests.faults.kill_saving", folder, model)
        whole |= {digest(folder / name): number for number, name in enumerate(("first", "second"))}
        kill_after(rng.uniform(0, 1.5), process, folder)
        left += len(list(folder.glob(".out.*")))
        key = digest(resolve_folder(folder / "out"))
        assert key in whole, "a mixture"
        found[whole[key]] += 1
    savers(model)[0](folder / "out")
    assert not list(folder.glob(".out.*"))
    return found, left


if __name__ == "__main__":
    first, second = savers(Path(sys.argv[2]))
    folder = Path(sys.argv[1])
    first(folder / "first")
    second(folder / "second")
    if not (folder / "out").exists():
        first(folder / "out")
    print("ready", flush=True)
    while True:
        second(folder / "out")
        first(folder / "out")
