"""What a sentence-transformers folder says beside its modules: `config_sentence_transformers.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head.steps import read_optional
from jaxwhiten.text import prompt_named

SETTINGS_FILE = "config_sentence_transformers.json"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a folder.

    Attributes:
      prompts: Texts to be put in front of sentences, by name.
      default_prompt_name: The one that is put there unasked, or None.
      similarity_fn_name: How vectors are compared, or None where the folder does not say.
      truncate_dim: Columns kept of every vector, or None for all.
    """

    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    truncate_dim: int | None = None

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """The settings of a folder; a file that is missing says nothing.

        Raises:
          ModelError: The file cannot be read, or an entry is not what it has to be.
        """
        file = folder / SETTINGS_FILE
        raw = read_optional(file)
        prompts, default, similarity, columns = (raw.get(field.name) for field in dataclasses.fields(cls))
        prompts = {} if prompts is None else prompts
        of_texts = isinstance(prompts, dict) and all(isinstance(text, str | None) for text in prompts.values())
        for name, value, good, expected in (
            ("prompts", prompts, of_texts, "texts by name"),
            ("truncate_dim", columns, columns is None or (type(columns) is int and columns > 0), "a number of columns"),
            ("default_prompt_name", default, isinstance(default, str | None), "a name"),
            ("similarity_fn_name", similarity, isinstance(similarity, str | None), "a name"),
        ):
            if not good:
                raise ModelError(f"{file}: {name} is {value!r:.80}; expected {expected}.")
        settings = cls({name: text or "" for name, text in prompts.items()}, default, similarity, columns)
        try:
            settings.default_prompt  # noqa: B018 - the name is looked up
        except InputError as error:
            raise ModelError(f"{file}: default_prompt_name: {error}") from error
        return settings

    @property
    def default_prompt(self) -> str:
        """The text put in front of a sentence unasked; `InputError` if there is no prompt of the default's name."""
        return prompt_named(self.prompts, self.default_prompt_name) if self.default_prompt_name else ""

    def write(self, folder: Path) -> None:
        """Writes the file that `read` and sentence-transformers read."""
        entries: dict[str, Any] = {"__version__": {"jaxwhiten": __version__}, **dataclasses.asdict(self)}
        if self.truncate_dim is None:
            del entries["truncate_dim"]
        io.write_json(folder / SETTINGS_FILE, entries)
