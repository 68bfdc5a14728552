"""The un-tuned encoder that ships with the package: whole, small, found by name offline, and better when whitened."""

import pytest

from jaxwhiten.errors import ModelError
from jaxwhiten.models import folders, resolve_folder

NAME = "jaxwhiten-tiny"


def test_damaged_weights_are_refused(monkeypatch):
    module, inner, _ = folders._PACKAGED[NAME]
    monkeypatch.setitem(folders._PACKAGED, NAME, (module, inner, "0" * 64))
    with pytest.raises(ModelError, match="sha256"):
        resolve_folder(NAME)
