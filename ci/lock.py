r"""Writes ci/requirements.lock: every package that CI installs, with its version and SHA-256.

    python -m pip install --dry-run --ignore-installed --quiet --report report.json \
        '.[cpu,data,train,test,parity,mteb,notebooks,scale,docs]'
    python ci/lock.py report.json > ci/requirements.lock

Run it with the Python and on the platform that the lock is for: the hashes are those of the files pip chose there.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def locked(report: dict[str, Any]) -> Iterator[str]:
    """The lines of the lock, by name.

    Args:
      report: What `pip install --report` wrote.

    Yields:
      One line a package; the project itself is left out.

    Raises:
      ValueError: A package without a hash.
    """
    rows = []
    for item in report["install"]:
        name, version = item["metadata"]["name"].lower().replace("_", "-"), item["metadata"]["version"]
        if name == "jaxwhiten":
            continue
        sha256 = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if sha256 is None:
            raise ValueError(f"{name} {version}: pip's report has no SHA-256 for it.")
        rows.append(f"{name}=={version} --hash=sha256:{sha256}")
    yield from sorted(rows)


if __name__ == "__main__":
    print(f"# For Python {platform.python_version()} on {platform.system()} {platform.machine()}; made by ci/lock.py.")
    print("# pip install --require-hashes -r ci/requirements.lock && pip install --no-deps --editable .")
    for line in locked(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))):
        print(line)
