"""Searches made from the data at hand."""

import numpy as np
import pytest

from eval import searches
from jaxwhiten.errors import DataNotFoundError


def gold(data):
    return [data.gold.ids[slice(*data.gold.indptr[i : i + 2])].tolist() for i in range(len(data.queries))]


def test_a_passage_s_second_sentence_finds_its_first(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path))
    with pytest.raises(DataNotFoundError, match="text/enwiki"):
        searches.load_search("wikipedia-7000", None)
    folder = tmp_path / "text" / "enwiki"
    folder.mkdir(parents=True)
    passages = [
        "The cat sat down. It was quite tired. It slept.",
        "A heading only",
        "J. Doe is a film. It came in 1962.",
    ]
    (folder / "enwiki-00.txt").write_text("\n".join(passages), encoding="utf-8")
    data = searches.load_search("wikipedia-7000", None)
    assert data.documents[0] == "The cat sat down."
    assert data.queries[0] == "It was quite tired."
    assert (len(data.documents), gold(data)) == (2, [[0], [1]])


def test_premises_find_what_they_entail(tmp_path):
    (tmp_path / "nli").mkdir()
    rows = ["premise\thypothesis\tlabel\tsplit", "A dog runs.\tAn animal moves.\tentailment\tdev"]
    rows += ["A dog runs.\tA cat sleeps.\tcontradiction\tdev", "A man sings.\tA person sings.\tentailment\ttest"]
    (tmp_path / "nli" / "snli_dev_test.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    data = searches.load_search("snli", str(tmp_path))
    assert data.queries == ["A dog runs.", "A man sings."]
    assert data.documents == ["An animal moves.", "A person sings."]
    assert gold(data) == [[0], [1]]


def test_templated_sentences_have_one_paraphrase_each():
    data = searches.load_search("templated", None)
    hits = gold(data)
    assert np.mean([len(ids) == 1 for ids in hits]) > 0.99
    query, document = data.queries[0], data.documents[hits[0][0]]
    person, count, item = document.split()[0], *document.split()[2:4]
    assert {person, count, item} <= set(query.replace(",", "").replace(".", "").split())
