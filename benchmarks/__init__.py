"""One program a question, each timing the peers in the same run on the same input."""

import os

os.environ.setdefault("JAXWHITEN_ENGINE", "auto")  # what users get; eval, which some import, would name the reference
