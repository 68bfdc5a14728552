"""Files: atomic writes, checksums, cache keys, and the one tensor-file format of the project."""

from jaxwhiten.io.files import (
    MANIFEST,
    PathLike,
    atomic_path,
    below,
    check_file,
    check_folder,
    put_back,
    reason,
    remove_stale,
    replaceable,
    reserve,
    whole_folder,
    write_json,
    write_text,
    writing,
)
from jaxwhiten.io.kept import CHECKSUMS, Files, Identity, identity, keep, recall, sha256_once
from jaxwhiten.io.tensors import (
    FORMAT_VERSION,
    cache_dir,
    check_version,
    content_key,
    load_tensors,
    map_array,
    save_array,
    save_tensors,
    seal,
    sha256_file,
    take,
)

__all__ = ["CHECKSUMS", "FORMAT_VERSION", "MANIFEST", "Files", "Identity", "PathLike", "atomic_path", "below"]
__all__ += ["cache_dir", "check_file", "check_folder", "check_version", "content_key", "identity", "keep"]
__all__ += ["load_tensors", "map_array", "put_back", "reason", "recall", "remove_stale", "replaceable", "reserve"]
__all__ += [
    "save_array",
    "save_tensors",
    "seal",
    "sha256_file",
    "sha256_once",
    "take",
    "whole_folder",
    "write_json",
    "write_text",
    "writing",
]
