"""What the config files say of their keys."""

from pathlib import Path

import pytest
from ml_collections import ConfigDict

from configs import launch
from configs.launch import key_comments
from tests.conftest import ROOT

OTHERS = ("__init__", "launch", "vocabulary")
CONFIGS = sorted(path for path in (ROOT / "configs").glob("*.py") if path.stem not in OTHERS)

BASE = """
from ml_collections import ConfigDict

def get_config():
    config = ConfigDict()
    config.model = "a#b"  # a hub id
    # One line above,
    # and another.
    config.rate = 0.1
    config.bare = 0
    config.pair = ConfigDict({"one": 1, "two": 2})  # of both
    config.wide = (
        1,
        2,
    )  # behind the last line
    return config
"""
CHILD = """
import base

def get_config():
    config = base.get_config()
    config.rate = 0.2  # the child's own
    config.model = "c"
    return config
"""


def test_comments_behind_and_above_the_base_s_where_there_is_no_other(tmp_path, monkeypatch):
    (tmp_path / "base.py").write_text(BASE)
    (tmp_path / "child.py").write_text(CHILD)
    monkeypatch.syspath_prepend(tmp_path)
    module, _ = launch._load(str(tmp_path / "child.py"))
    found = key_comments(module)
    assert found["model"] == "a hub id"
    assert found["rate"] == "the child's own"
    assert found["pair.one"] == found["pair.two"] == "of both"
    assert found["wide"] == "behind the last line"
    assert "bare" not in found
    base, _ = launch._load(str(tmp_path / "base.py"))
    assert key_comments(base)["rate"] == "One line above, and another"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: Path(path).stem)
def test_every_key_has_a_comment(path):
    module, _ = launch._load(str(path))
    comments = key_comments(module)
    keys = {key for key, value in launch.config_keys(module.get_config()).items() if not isinstance(value, ConfigDict)}
    assert keys <= set(comments), sorted(keys - set(comments))
