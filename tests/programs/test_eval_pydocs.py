"""Docstrings as retrieval data: parsed, not imported; first sentence and rest; the same every time."""

import sys

import pytest

from eval.pydocs import load_pydocs, split_docstring


@pytest.mark.parametrize(
    ("text", "first", "rest"),
    [
        ("One sentence here. And a second one.", "One sentence here.", "And a second one."),
        ("No full stop\n\nBut a paragraph follows.", "No full stop", "But a paragraph follows."),
        ("Wrapped over\ntwo lines. Then more\ntext.", "Wrapped over two lines.", "Then more text."),
        ("Returns x, e.g. The thing. Then more.", "Returns x, e.g. The thing.", "Then more."),
        ("Is it (really?) so? Yes.", "Is it (really?) so?", "Yes."),
        ('He said "stop." Then left.', 'He said "stop."', "Then left."),
        ("Calls foo.bar() when asked.", "Calls foo.bar() when asked.", ""),
        ("", "", ""),
    ],
)
def test_first_sentence_and_rest(text, first, rest):
    assert split_docstring(text) == (first, rest)


def test_sources_are_parsed_and_never_run(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "danger.py").write_text(
        '"""Raises the alarm loudly. Nobody should ever import this module."""\n'
        "raise SystemExit('imported')\n"
        "class A:\n"
        '    """Holds three small values. Each of them is a number."""\n'
        "    def f(self):\n"
        '        """Only one sentence stands here."""\n'
        "    async def g(self):\n"
        '        """Waits for the other side. Gives up after some time."""\n'
    )
    (tmp_path / "a.py").write_text('"""First module by name. It comes before the others."""\n')
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "latin.py").write_bytes(
        b"# -*- coding: latin-1 -*-\n'''Caf\xe9 culture is explained. Three more words.'''\n"
    )
    (tmp_path / "escape.py").write_text("'''Has a bad \\d escape inside. Three more words.'''\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "t.py").write_text('"""Not a part of this. It is never read."""\n')
    data = load_pydocs(tmp_path)
    assert data.queries == [
        "First module by name.",
        "Has a bad \\d escape inside.",
        "Café culture is explained.",
        "Raises the alarm loudly.",
        "Holds three small values.",
        "Waits for the other side.",
    ]
    last = data.gold.ids[data.gold.indptr[5] : data.gold.indptr[6]]
    assert [data.documents[i] for i in last] == ["Gives up after some time."]
    assert data.counts["docstrings"] == 7
    assert data.counts["modules"] == 5


def test_equal_first_sentences_are_one_query_with_all_their_documents(tmp_path):
    (tmp_path / "m.py").write_text(
        "def f():\n    '''Closes the open file. Errors are passed on.'''\n"
        "def g():\n    '''Closes the open file. Nothing is passed on.'''\n"
        "def h():\n    '''Closes the open file. Nothing is passed on.'''\n"
    )
    data = load_pydocs(tmp_path)
    assert data.queries == ["Closes the open file."]
    assert data.documents == ["Errors are passed on.", "Nothing is passed on."]
    assert data.gold.ids.tolist() == [0, 1]


def test_the_standard_library_gives_thousands_and_imports_nothing():
    before = set(sys.modules)
    data = load_pydocs()
    assert not {
        name for name in set(sys.modules) - before if name.partition(".")[0] in ("antigravity", "this", "tkinter")
    }
    assert 2000 < len(data.documents) < 10_000
    assert len(data.queries) - len(data.with_gold().queries) == 0
    for query, document in zip(data.queries[:500], data.documents[:500], strict=True):
        assert query
        assert query not in document or len(query) < 40
