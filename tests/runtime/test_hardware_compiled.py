"""Compiled programs go to the cache folder, unless the user has said otherwise."""

import subprocess
import sys

import jax
import pytest

from jaxwhiten.runtime import hardware


@pytest.fixture
def nothing_chosen(monkeypatch, tmp_path):
    """As in a new process; afterwards the settings are as they were."""
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path))
    for name in ("JAXWHITEN_COMPILATION_CACHE", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize(("own", "kept"), [(None, True), ("/elsewhere", True), (None, False)])
def test_they_are_kept_in_the_cache_folder_or_where_the_user_says(nothing_chosen, monkeypatch, own, kept):
    jax.config.update("jax_compilation_cache_dir", own)
    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", str(int(kept)))
    hardware.keep_compiled()
    expected = str(nothing_chosen / "xla") if kept and own is None else own
    assert jax.config.jax_compilation_cache_dir == expected


@pytest.mark.slow
def test_a_later_process_finds_them(nothing_chosen):
    """Compilation is announced as a miss first, then as a hit."""
    code = """
import jax, jax.numpy as jnp
from jaxwhiten.runtime import hardware
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
hardware._WORTH_KEEPING = 0
hardware.keep_compiled()
jax.jit(lambda x: jnp.linalg.inv(x) @ x)(jnp.eye(3)).block_until_ready()
print(any("cache_hits" in name for name in events))
"""
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert [one.stdout.strip() for one in said] == ["False", "True"]
