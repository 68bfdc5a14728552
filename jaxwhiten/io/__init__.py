"""Files: atomic writes, checksums, cache keys, and the one tensor-file format of the project."""

from jaxwhiten.io.files import (
    MANIFEST,
    PathLike,
    atomic_path,
    below,
    check_file,
    check_folder,
    put_back,
    remove_stale,
    replaceable,
    whole_folder,
    write_json,
    write_text,
    writing,
)
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
    sha256_once,
)

__all__ = ["FORMAT_VERSION", "MANIFEST", "PathLike", "atomic_path", "below", "cache_dir", "check_file", "check_folder"]
__all__ += ["check_version", "content_key", "load_tensors", "map_array", "put_back", "remove_stale", "replaceable"]
__all__ += ["save_array", "save_tensors", "seal", "sha256_file", "sha256_once", "whole_folder", "write_json"]
__all__ += ["write_text", "writing"]
