"""Quora from a local folder, downloaded from loopback, or neither."""

import gzip

import pytest

from eval.searches import QUORA_FILE, load_search
from jaxwhiten.errors import DataNotFoundError
from tests.datasets.conftest import no_data, serve  # noqa: F401 (fixtures)

TEXT = (
    b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhat is it?\tWhat's it?\t1\n1\t3\t4\tA?\tB?\t0\nx\n"
)


@pytest.mark.parametrize("subfolder", ["", "quora", "downstream/Quora"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_local_file_is_read(subfolder, packed, tmp_path, no_data, monkeypatch):  # noqa: F811
    folder = tmp_path / "data" / subfolder
    folder.mkdir(parents=True)
    (folder / (QUORA_FILE + ".gz" * packed)).write_bytes(gzip.compress(TEXT) if packed else TEXT)
    data = load_search("quora", str(tmp_path / "data"))
    assert data.name == "quora"
    assert data.documents == ["What's it?", "B?"]
    assert data.counts["malformed_rows"] == 1
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path / "data"))
    assert load_search("quora", None).documents == data.documents


def test_it_is_downloaded_once(serve, no_data, monkeypatch):  # noqa: F811
    address, requests = serve({"/q.tsv": TEXT})
    monkeypatch.setenv("JAXWHITEN_QUORA_URL", f"{address}/q.tsv")
    first, second = load_search("quora", None), load_search("quora", None)
    assert first.documents == second.documents == ["What's it?", "B?"]
    assert requests == ["/q.tsv"]


def test_a_data_folder_without_it_does_not_stop_the_download(serve, no_data, tmp_path, monkeypatch):  # noqa: F811
    address, _ = serve({"/q.tsv": TEXT})
    monkeypatch.setenv("JAXWHITEN_QUORA_URL", f"{address}/q.tsv")
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path))
    assert len(load_search("quora", None).queries) == 2


def test_without_folder_and_network_both_remedies_are_named(no_data, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("JAXWHITEN_QUORA_URL", "http://127.0.0.1:9/q.tsv")
    with pytest.raises(DataNotFoundError, match=r"data_dir.* or connect"):
        load_search("quora", None)
    with pytest.raises(DataNotFoundError, match=f"no {QUORA_FILE} in it"):
        load_search("quora", str(tmp_path))
