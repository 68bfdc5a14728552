"""Lines of small text files."""

from jaxwhiten.datasets import numbered_lines
from jaxwhiten.io import PathLike


def read_lines(path: PathLike) -> list[str]:
    """All lines of a text file, plain or compressed; DataError with file and line if one is not clean text."""
    return [line for _, line in numbered_lines(path)]
