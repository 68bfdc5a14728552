"""A hook of mkdocs: the repository, the version and the license stand in pyproject.toml, and on every page."""

import re
import tomllib
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]


def on_config(config: Any) -> Any:
    """The configuration, with the link to the repository and the line at the foot of a page."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project["urls"]["Repository"]
    version = re.search(r'"(.+)"$', (_ROOT / "jaxwhiten" / "_version.py").read_text(encoding="utf-8").strip())
    files = {"License": "LICENSE", "Cite": "CITATION.cff", "Changes": "CHANGELOG.md", "Contribute": "CONTRIBUTING.md"}
    links = [f'<a href="{address}/blob/main/{file}">{name}</a>' for name, file in files.items()]
    config.repo_url, config.repo_name = address, "jaxwhiten"
    config.copyright = " · ".join([f"jaxwhiten {version[1] if version else ''}", project["license"], *links])
    return config
