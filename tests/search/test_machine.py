"""Any history of an index, by any hands, with interrupts at any line, gives what a list of its documents gives."""

import itertools
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import jaxwhiten
from jaxwhiten.codes import SpectrumCode, make_code
from jaxwhiten.errors import InputError
from jaxwhiten.search import build_index, load_index, state
from jaxwhiten.whitening import Whitening

OURS = (os.path.dirname(jaxwhiten.__file__), os.path.dirname(os.__file__) + "/contextlib.py")
D = 16
POOL = (np.random.default_rng(0).standard_normal((400, D)) * np.linspace(2, 0.5, D) + 0.2).astype(np.float32)
CODE = SpectrumCode(bytes=8).fit(POOL)
LANGUAGES = ["en", "de", None]
KINDS = {
    "faiss floats": ("faiss-flat", {}),
    "faiss codes": ("faiss-flat", {"codes": CODE}),
    "faiss codes, rescored": ("faiss-flat", {"codes": CODE, "rescore": "float16"}),
    "faiss lists": ("faiss-ivf", {"codes": CODE, "nlist": 2, "nprobe": 2}),
    "jax floats": ("jax", {}),
    "jax codes, rescored": ("jax", {"codes": CODE, "rescore": "float16"}),
    "jax int8": ("jax", {"codes": make_code("int8").fit(POOL)}),
    "faiss binary": ("faiss-flat", {"codes": make_code("ubinary").fit(POOL)}),
    "faiss whitened": ("faiss-flat", {"whitening": Whitening(12).fit(POOL)}),
}
numbers = st.lists(st.integers(0, len(POOL) - 1), min_size=1, max_size=6, unique=True)


def interrupted(work, line):
    """Does the work, with KeyboardInterrupt at this line of the library, if it comes that far."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            count += 1
            if count == line:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)


def document(number, version):
    return {"text": f"{number} in version {version}", "metadata": {"n": number, "lang": LANGUAGES[number % 3]}}


class History(RuleBasedStateMachine):
    """Two indexes of one file, as two processes have them, and the documents that they must hold."""

    kind = "faiss codes"
    name_of = None  # makes the ID of a document; None where the index numbers them

    def __init__(self):
        super().__init__()
        self.version = 0
        self.documents = {}  # by id: number in the pool, and version
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "docs.db"

    def teardown(self):
        self.folder.cleanup()

    def id_of(self, number):
        return type(self).name_of(number) if self.name_of else number

    def arguments(self, picks):
        """The vectors, texts and metadata of documents of the pool."""
        self.version += 1
        made = [document(number, self.version) for number in picks]
        return POOL[picks], {"documents": [one["text"] for one in made], "metadata": [one["metadata"] for one in made]}

    @initialize(picks=st.lists(st.integers(0, 399), min_size=3, max_size=20, unique=True))
    def build(self, picks):
        backend, options = KINDS[self.kind]
        vectors, kept = self.arguments(picks)
        ids = [self.id_of(number) for number in picks] if self.name_of else None
        self.index = build_index(vectors, backend, ids=ids, **kept, **options)
        self.index.save(self.file)
        self.other = load_index(self.file)
        self.next = len(picks)
        self.documents = {(ids[place] if ids else place): (n, self.version) for place, n in enumerate(picks)}

    def changed(self, change, after, line):
        """Makes a change, interrupted at a line, if there is one: the documents are those before or after."""
        if line is None:
            change()
            self.documents = after
            return
        interrupted(change, line)
        there = {one.id: one.text for one in self.other}
        expected = [{id: document(*value)["text"] for id, value in some.items()} for some in (self.documents, after)]
        assert there in expected
        self.documents = after if there == expected[1] else self.documents

    @rule(picks=numbers, line=st.none() | st.integers(1, 700))
    def add(self, picks, line):
        if self.name_of and any(self.id_of(number) in self.documents for number in picks):
            with pytest.raises(InputError, match="already in the index"):
                self.index.check_ids("add", list(map(self.id_of, picks)), len(picks))
            return
        vectors, kept = self.arguments(picks)
        ids = [self.id_of(number) for number in picks] if self.name_of else None
        names = ids or range(self.next, self.next + len(picks))
        after = self.documents | {id: (number, self.version) for id, number in zip(names, picks, strict=True)}
        self.changed(lambda: self.index.add(vectors, ids=ids, **kept), after, line)
        if self.documents is after:
            self.next += len(picks)

    @rule(picks=numbers, data=st.data(), line=st.none() | st.integers(1, 700))
    def upsert(self, picks, data, line):
        present = data.draw(st.lists(st.sampled_from(sorted(self.documents)), max_size=3, unique=True))
        ids = [*present, *dict.fromkeys(self.id_of(number) for number in picks)] if self.name_of else present
        ids = [*dict.fromkeys(ids)]
        if not ids:
            return
        picks = [(hash(str(id)) + self.version) % len(POOL) for id in ids]
        vectors, kept = self.arguments(picks)
        after = self.documents | {id: (number, self.version) for id, number in zip(ids, picks, strict=True)}
        self.changed(lambda: self.other.upsert(ids, vectors, **kept), after, line)

    @precondition(lambda self: len(self.documents) > 4)
    @rule(data=st.data(), line=st.none() | st.integers(1, 400))
    def remove(self, data, line):
        most = len(self.documents) - 2
        ids = data.draw(
            st.lists(st.sampled_from(sorted(self.documents)), min_size=1, max_size=min(most, 9), unique=True)
        )
        after = {id: value for id, value in self.documents.items() if id not in ids}
        unknown = self.id_of(10**6)
        self.changed(lambda: self.index.remove([*ids, unknown]), after, line)
        with pytest.raises(InputError, match="No document"):
            self.index.remove([unknown], strict=True)

    @rule(move=st.booleans())
    def reopen(self, move):
        """The index is loaded again, or moves to another file."""
        if move:
            self.file = Path(self.folder.name) / f"{self.version}.db"
            self.index.save(self.file)
        self.index, self.other = load_index(self.file), load_index(self.file)

    @invariant()
    def holds_the_documents(self):
        for index in (self.index, self.other):
            assert len(index) == len(self.documents)
            assert sorted(index.ids.tolist()) == sorted(self.documents)

    @rule(query=st.integers(0, 399), k=st.integers(1, 30), data=st.data())
    def search(self, query, k, data):
        among = data.draw(st.none() | st.lists(st.sampled_from(sorted(self.documents)), min_size=1, max_size=9))
        where = data.draw(st.sampled_from([None, "lang = 'en'", {"n": {"gte": 100}}, {"lang": ["de", "en"]}]))
        keep = {
            None: lambda n: True,
            "lang = 'en'": lambda n: n % 3 == 0,
            "n": lambda n: n >= 100,
            "lang": lambda n: n % 3 < 2,
        }[where if where is None or isinstance(where, str) else next(iter(where))]
        chosen = [id for id, (n, _) in self.documents.items() if keep(n) and (among is None or id in among)]
        [hits] = self.index.hits(POOL[[query]] + np.float32(0.03), k, among, where)
        assert hits == [hit for hit in self.other.hits(POOL[[query]] + np.float32(0.03), k, among, where)[0]]
        assert len({hit.id for hit in hits}) == len(hits) == min(k, len(chosen))
        assert {hit.id for hit in hits} <= set(chosen)
        for hit in hits:
            assert (hit.text, hit.metadata) == tuple(document(*self.documents[hit.id]).values())
        scores = {id: self.cosine(query, self.documents[id][0]) for id in chosen}
        allowed = 0.02 if "rescored" in self.kind else 1e-5
        np.testing.assert_allclose([hit.score for hit in hits], [scores[hit.id] for hit in hits], atol=allowed)
        best = sorted(scores.values(), reverse=True)[: len(hits)]
        if "rescored" not in self.kind or 4 * k >= len(chosen):
            np.testing.assert_allclose([hit.score for hit in hits], best, atol=allowed)

    def cosine(self, query, number):
        """Of a query and what is kept of a document."""
        options = KINDS[self.kind][1]
        asked, there = POOL[query] + np.float32(0.03), POOL[number]
        if whitening := options.get("whitening"):
            asked, there = whitening.transform(np.stack([asked, there]))
        if (code := options.get("codes")) and "rescore" not in options:
            quantizer = code.quantizer()
            there = code.decode(quantizer.quantize(quantizer.affine(there[None])))[0]
        if code:
            asked = asked / np.linalg.norm(asked)
        return float(asked @ there / np.linalg.norm(asked) / np.linalg.norm(there))


FEW = [("faiss codes, rescored", "integers"), ("faiss lists", "numbered"), ("jax int8", "strings")]
IDS = {"strings": "d{}".format, "numbered": None, "integers": int}
MANY = [*itertools.product(KINDS, ("strings", "numbered")), *((kind, "integers") for kind in [*KINDS][::3])]


@pytest.mark.parametrize(
    ("kind", "ids", "examples", "steps"),
    [
        *((*one, 8, 15) for one in FEW),
        *(pytest.param(*one, 84, 30, marks=pytest.mark.slow) for one in MANY),
    ],
)
def test_histories_equal_the_lists_of_their_documents(kind, ids, examples, steps, monkeypatch):
    if KINDS[kind][0] != "jax":
        pytest.importorskip("faiss")
    monkeypatch.setattr(state, "_FEW", 5)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        phases=[Phase.generate],
    )
    run_state_machine_as_test(type("Machine", (History,), {"kind": kind, "name_of": IDS[ids]}), settings=how)
