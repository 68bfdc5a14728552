"""Tiny data in the layout of the real one: the same tasks and subsets with a few rows each, served where asked for."""

import dataclasses
import gzip
import http.server
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eval.data import protocol
from eval.data.protocol import Count, TaskSpec

ROWS = 6


def shrink(spec: TaskSpec) -> TaskSpec:
    """The same task with `ROWS` rows a file; half of them scored where the real task has unscored pairs."""
    counts = {
        split: {
            name: Count(ROWS, ROWS if count.scored == count.total else ROWS // 2) for name, count in subsets.items()
        }
        for split, subsets in spec.counts.items()
    }
    return dataclasses.replace(spec, counts=counts)


def _rows(name: str, spec: TaskSpec) -> list[tuple[str, str, float]]:
    span = spec.high - spec.low
    return [(f"“{name}” left {i}", f"{name} right {i}", round(spec.low + span * i / ROWS, 3)) for i in range(ROWS)]


def task_files(spec: TaskSpec) -> dict[str, bytes]:
    """The files of one tiny task by path below `downstream`."""
    files = {}
    for split, subsets in spec.counts.items():
        for name, count in subsets.items():
            rows = _rows(f"{name} {split}", spec)
            if spec.layout == "semeval":
                scored = count.scored == count.total
                gold = [str(row[2]) if scored or i % 2 else "" for i, row in enumerate(rows)]
                files[f"STS.input.{name}.txt"] = "".join(f"{a}\t{b}\n" for a, b, _ in rows)
                files[f"STS.gs.{name}.txt"] = "".join(f"{g}\n" for g in gold)
            elif spec.layout == "stsb":
                lines = [f'genre\tfile\t2012\t{i}\t{s}\t"{a}\t{b}\n' for i, (a, b, s) in enumerate(rows)]
                files[spec.files[split]] = "".join(lines)
            else:
                header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
                lines = [f"{i}\t{a}\t{b}\t{s}\tNEUTRAL\r\n" for i, (a, b, s) in enumerate(rows)]
                files[spec.files[split]] = header + "".join(lines)
    return {f"{spec.folder}/{name}": text.encode() for name, text in files.items()}


@pytest.fixture
def tiny_specs(monkeypatch: pytest.MonkeyPatch) -> dict[str, TaskSpec]:
    """The expected counts, replaced for the length of a test by those of the tiny tasks."""
    specs = {name: shrink(spec) for name, spec in protocol.TASK_SPECS.items()}
    monkeypatch.setattr(protocol, "TASK_SPECS", specs)
    return specs


@pytest.fixture
def tiny_files(tiny_specs: dict[str, TaskSpec]) -> dict[str, bytes]:
    """Every file of every tiny task by path below `downstream`."""
    return {name: data for spec in tiny_specs.values() for name, data in task_files(spec).items()}


@pytest.fixture
def tiny_folder(tiny_files: dict[str, bytes], tmp_path: Path) -> Path:
    """A SentEval-style folder of the tiny tasks."""
    for name, data in tiny_files.items():
        path = tmp_path / "downstream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No data folder, an empty cache, and addresses where nobody listens."""
    monkeypatch.delenv("JAXWHITEN_DATA_DIR", raising=False)
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAXWHITEN_SENTEVAL_URL", "http://127.0.0.1:9/senteval.tar")
    monkeypatch.setenv("JAXWHITEN_ALLNLI_URL", "http://127.0.0.1:9/AllNLI.tsv.gz")
    return tmp_path / "cache"


def make_tar(files: dict[str, bytes], *members: tarfile.TarInfo) -> bytes:
    """An uncompressed tar archive of some files; `members` are added first, without content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in members:
            tar.addfile(member)
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def make_allnli() -> bytes:
    """A tiny AllNLI.tsv.gz in the layout of the real one."""
    lines = ["split\tdataset\tfilename\tsentence1\tsentence2\tlabel"]
    for split in ("train", "dev", "test"):
        for i, label in enumerate(("entailment", "neutral", "contradiction", "-")):
            lines.append(f'{split}\tSNLI\tsnli_1.0_{split}\tA "premise {i}\tA hypothesis of {split} {i}\t{label}')
    return gzip.compress("\n".join(lines).encode() + b"\n")


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, bytes]], tuple[str, list[str]]]]:
    """Serves files by path on loopback; gives the address and the list of paths asked for."""
    servers = []

    def start(files: dict[str, bytes], truncate: int = 0) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                data = files.get(self.path)
                self.send_response(200 if data is not None else 404)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write((data or b"")[: len(data or b"") - truncate])

            def log_message(self, *args: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}", asked

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()
