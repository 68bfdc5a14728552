"""Docstrings as retrieval data: parsed, not imported; first sentence and rest; the same every time."""

from eval.pydocs import load_pydocs


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
