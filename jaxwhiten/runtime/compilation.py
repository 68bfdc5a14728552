"""The cache of compiled programs, kept between runs."""

from __future__ import annotations

import os
import tempfile
import warnings

import jax

from jaxwhiten import io

_WORTH_KEEPING = 0.1  # seconds of compilation


def keep_compiled() -> None:
    """Makes JAX store compiled programs in the cache folder and load them in later runs.

    Does nothing if the user has chosen a folder (`JAX_COMPILATION_CACHE_DIR`) or set `JAXWHITEN_COMPILATION_CACHE=0`.
    """
    cache_dir = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if cache_dir is None and os.environ.get("JAXWHITEN_COMPILATION_CACHE") != "0":
        folder = io.cache_dir("xla")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            return warnings.warn(f"{folder}: no cache ({error.strerror}); set JAXWHITEN_CACHE_DIR.", stacklevel=2)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)
