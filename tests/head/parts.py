"""Parts of model folders that are replaced on purpose."""

import json

from jaxwhiten import io


def accept(folder, *names):
    """Makes the files of these names parts of the folder as they are now."""
    manifest = json.loads((folder / io.MANIFEST).read_text())
    for name in names:
        if (folder / name).is_file():
            manifest["parts"][name] = io.sha256_file(folder / name)
        else:
            del manifest["parts"][name]
    (folder / io.MANIFEST).write_text(json.dumps(manifest))
