"""How far the journeys of users walk: the functions and files of the library that each passes, within its budget.

A journey that needs more than a tenth above its figure has found a detour: shorten it, or say in the commit why not and
write the new figure here. What starts up is counted likewise, in modules that are not Python's own.
"""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT, own_cache

MORE = 1.1
WALKS = {  # functions and files
    "from_pretrained": (177, 35),
    "encode a text": (67, 18),
    "shrink": (258, 46),
    "index": (164, 36),
    "load_index": (59, 19),
    "first search": (254, 43),
    "search": (79, 24),
    "evaluate": (222, 38),
}
STARTS = {  # modules
    "import jaxwhiten": 3,
    "from jaxwhiten.commands import cli; cli.main(['--help'])": 76,
}
PROGRAM = """
import json, sys, threading, warnings
from pathlib import Path
import jaxwhiten
import jaxwhiten.codes, jaxwhiten.encoding, jaxwhiten.scoring, jaxwhiten.search, jaxwhiten.whitening
warnings.simplefilter("ignore")
root, counts = str(Path(jaxwhiten.__file__).parent), {}
def walk(name, journey):
    seen = set()
    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_qualname))
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return journey()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        counts[name] = len(seen), len({file for file, _ in seen})
texts = [f"A {a} {b} in the {c}." for a in "dog cat man girl bird".split() for b in "runs sits sings jumps".split()
         for c in "park house street rain garden sea wood".split()]
pairs = texts[:60], texts[60:120], [row % 7 for row in range(60)]
encoder = walk("from_pretrained", lambda: jaxwhiten.Encoder.from_pretrained("jaxwhiten-tiny"))
encoder.encode(texts[:3])
walk("encode a text", lambda: encoder.encode("A dog runs."))
small = walk("shrink", lambda: encoder.shrink(texts, bytes=24))
index = walk("index", lambda: small.index(texts, backend="jax"))
index.save("docs.db")
small.save("small")
loaded = walk("load_index", lambda: jaxwhiten.load_index("docs.db", model="small"))
walk("first search", lambda: loaded.search("a dog", k=3))
walk("search", lambda: loaded.search("a cat", k=3))
walk("evaluate", lambda: jaxwhiten.evaluate(encoder, pairs, bytes=24, resamples=100))
print(json.dumps(counts))
"""
COUNT = """
import contextlib, io, sys
before = set(sys.modules)
with contextlib.redirect_stdout(io.StringIO()):
    exec(sys.argv[1])
print(len([name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names]))
"""


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The functions and files of every journey, in a process without the checks of types."""
    folder = tmp_path_factory.mktemp("walks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXWHITEN_ENGINE", "jax")  # which is everywhere
        patch.setenv("JAXWHITEN_CACHE_DIR", own_cache(folder / "cache"))
        done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("journey", WALKS)
def test_a_journey_stays_within_its_budget(walked, journey):
    found = walked[journey]
    assert min(found) > 1, "nothing was counted"
    assert all(got <= MORE * most for got, most in zip(found, WALKS[journey], strict=True)), (found, WALKS[journey])


@pytest.mark.parametrize("line", STARTS)
def test_a_start_imports_few_modules(line):
    done = subprocess.run([sys.executable, "-c", COUNT, line], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 1 < int(done.stdout) <= MORE * STARTS[line], (done.stdout, STARTS[line])
