"""A pytest plugin that hides PyTorch, so that tests run as `make test` runs them: `pytest -p tests.without_torch`."""

from importlib.machinery import PathFinder

_find_spec = PathFinder.find_spec


def _find_all_but_torch(cls, fullname, path=None, target=None):
    return None if fullname.partition(".")[0] == "torch" else _find_spec(fullname, path, target)


PathFinder.find_spec = classmethod(_find_all_but_torch)
