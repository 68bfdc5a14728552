"""The public address of the STS tasks, and safe downloading and unpacking.

An archive is never unpacked as a whole. Only regular files that match a wanted path are copied, and they get a name
from the list of wanted files, so absolute paths, `..`, links and devices in the archive have no effect. The sizes of
members and downloads are bounded.
"""

from __future__ import annotations

import logging
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from eval.data import protocol
from eval.data.protocol import TaskSpec
from jaxwhiten.errors import REASON, DataError, DataNotFoundError, OutputError, optional, turning
from jaxwhiten.io import PathLike, atomic_path, content_key, sha256_file
from jaxwhiten.terminal.bars import Progress

SENTEVAL_URL = "https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse/resolve/main/senteval.tar"
SENTEVAL_URL_VARIABLE = "JAXWHITEN_SENTEVAL_URL"  # for mirrors

MAX_DOWNLOAD = 1 << 30
MAX_FILE = 16 << 20
MAX_MEMBERS = 100_000
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_CHUNK = 1 << 18

_log = logging.getLogger(__name__)


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"{path}: cannot be written ({error.strerror or error}). Set $JAXWHITEN_CACHE_DIR to another folder."
    )


def _reason(error: Exception) -> str:
    """A short description of a failed request."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP status {response.status_code}"
    name = type(error).__name__
    reasons = {"ConnectionError": "no connection", "ConnectTimeout": "no answer", "ReadTimeout": "no answer"}
    return reasons.get(name, f"{name}: {str(error)[:120]}")


def fetch(url: str, path: PathLike, what: str, *, max_bytes: int = MAX_DOWNLOAD) -> Path:
    """Downloads a file atomically, unless it exists already; `what` describes the file in errors."""
    path = Path(path)
    if path.is_file():
        return path
    requests = optional("requests", "eval", "Downloading data")
    try:
        with (
            requests.get(url, stream=True, timeout=(_CONNECT_SECONDS, _READ_SECONDS)) as response,
            Progress(desc=f"Downloading {path.name}", unit="B", unit_scale=True, leave=False) as bar,
        ):
            response.raise_for_status()
            bar.total = int(response.headers.get("Content-Length") or 0) or None
            with atomic_path(path) as temporary, open(temporary, "wb") as file:
                for chunk in response.iter_content(_CHUNK):
                    if bar.n + len(chunk) > max_bytes:
                        raise DataError(f"{url}: more than {max_bytes} bytes, so not the expected file.")
                    file.write(chunk)
                    bar.update(len(chunk))
    except requests.RequestException as error:
        raise DataNotFoundError(
            f"The {what} is not on this machine and could not be downloaded from {url} ({_reason(error)}). Set"
            " `data_dir` or $JAXWHITEN_DATA_DIR to a folder that contains it, or connect to the network and"
            " rerun."
        ) from error
    except OSError as error:
        raise _unwritable(path, error) from error
    _log.info("%s: downloaded from %s, sha256 %s", path, url, sha256_file(path))
    return path


def extract(archive: PathLike, folder: PathLike, wanted: Iterable[str]) -> None:
    """Copies only the wanted files from an uncompressed tar archive to a folder.

    A member matches a wanted relative path if its own path equals it or ends with it.
    """
    archive = Path(archive)
    folder = Path(folder)
    missing = set(wanted)
    try:
        # Mode "r:" accepts no compression, so no member can unpack to more than the archive's own size. Damaged headers
        # raise many types: TarError, ValueError, OverflowError.
        damaged = f"{archive}: damaged, or not an uncompressed tar archive ({REASON})."
        with turning(DataError, damaged), tarfile.open(archive, "r:") as tar:
            for number, member in enumerate(tar):
                if number >= MAX_MEMBERS:
                    raise DataError(f"{archive}: more than {MAX_MEMBERS} members, so not the expected archive.")
                name = next((name for name in missing if f"/{member.name}".endswith(f"/{name}")), None)
                if name is None or not member.isreg():
                    continue
                if member.size > MAX_FILE:
                    raise DataError(f"{archive}: member {member.name} has {member.size} bytes, more than {MAX_FILE}.")
                source = tar.extractfile(member)
                assert source is not None  # a plain file has content
                with atomic_path(folder / name) as temporary, open(temporary, "wb") as file:
                    shutil.copyfileobj(source, file)
                missing.remove(name)
    except OutputError as error:
        raise _unwritable(folder, error) from error
    if missing:
        raise DataError(f"{archive}: lacks {len(missing)} of the expected files, such as {min(missing)}.")


def wanted_files(specs: Iterable[TaskSpec]) -> list[str]:
    """The files of the tasks, relative to `downstream`."""
    result = []
    for spec in specs:
        names = list(spec.files.values())
        if spec.layout == "semeval":
            names = [f"STS.{kind}.{subset}.txt" for subset in spec.counts["test"] for kind in ("input", "gs")]
        result += [f"{spec.folder}/{name}" for name in names]
    return result


def senteval_folder(download_dir: PathLike) -> Path:
    """A SentEval-style folder with the STS tasks and SICK, downloaded and unpacked unless it exists already.

    The archive is always deleted, so that after an invalid one the next run downloads it again.
    """
    url = os.environ.get(SENTEVAL_URL_VARIABLE) or SENTEVAL_URL
    root = Path(download_dir) / f"senteval-{content_key(url)}"
    files = wanted_files(protocol.TASK_SPECS.values())
    if not all((root / "downstream" / name).is_file() for name in files):
        try:
            root.mkdir(parents=True, exist_ok=True)
            scratch = tempfile.TemporaryDirectory(dir=root)  # one per process
        except OSError as error:
            raise _unwritable(root, error) from error
        with scratch:
            archive = fetch(url, Path(scratch.name) / "senteval.tar", "STS data (a SentEval folder, `downstream/STS`)")
            extract(archive, root / "downstream", files)
    return root
