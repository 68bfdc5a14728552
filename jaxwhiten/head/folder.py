"""Heads in sentence-transformers folders: `modules.json` and the files it names, read and written.

The modules are those of `jaxwhiten.head.steps.STEPS`, after a Transformer or a StaticEmbedding, which also pools. Two
things that no module can express have files at the top of the folder: the fitted whitening behind a Dense layer, and a
code at the end of the head.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.codes import load_code
from jaxwhiten.errors import REASON, InputError, ModelError, turning
from jaxwhiten.head.head import AUTO, Head
from jaxwhiten.head.pooling import Mean, Pooling
from jaxwhiten.head.steps import CODE_FILE, STEPS, WHITENING_FILE, Found, StateStep, Step, StepModule, Target
from jaxwhiten.head.vectors import Quantize
from jaxwhiten.models import EncoderConfig, checkpoint, folders
from jaxwhiten.models.checkpoint import STATIC
from jaxwhiten.options import bounded
from jaxwhiten.text import BulkTokenizer, TextForm, prompt_named
from jaxwhiten.text.settings import ANEW, SETTINGS_FILES, TOKENIZER_SETTINGS, TransformerSettings, read_object
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.models import TransformerEncoder

SETTINGS_FILE = "config_sentence_transformers.json"
_IGNORED = ("Transformer", "Dropout")
_UNNAMED = "default"  # name of a prompt that has none


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a folder in addition to its modules: `config_sentence_transformers.json`.

    `prompts` maps names to texts that are put in front of sentences; the default prompt is used if none is named.
    `truncate_dim` is the number of columns kept of every vector; None keeps all. `tuned` is whether the encoder is
    fine-tuned for similarity; None if nobody recorded it.

    >>> Settings({"query": "query: "}, default_prompt_name="query").default_prompt
    'query: '
    """

    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    truncate_dim: int | None = bounded(None, 1)
    tuned: bool | None = None

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Reads the settings of a folder. A missing file gives the defaults, an unreadable one a `ModelError`."""
        file = folder / SETTINGS_FILE
        given = {name: value for name, value in read_object(file, optional=True).items() if value is not None}
        settings: Settings = io.from_json(cls, given, file, ANEW, ModelError)
        with turning(ModelError, f"{file}: default_prompt_name: {REASON}", InputError):
            settings.default_prompt  # noqa: B018 - the name is looked up
        return settings

    @property
    def default_prompt(self) -> str:
        """The prompt used if none is named; `InputError` if the default name has no prompt."""
        if self.default_prompt_name:
            return prompt_named(self.prompts, self.default_prompt_name)
        return ""

    def write(self, folder: Path) -> None:
        """Writes the file that `read` and sentence-transformers read."""
        io.write_json(folder / SETTINGS_FILE, {"__version__": {"jaxwhiten": __version__}, **io.to_json(self)})


class _Manifest(TypedDict, total=False):
    """What the folder's `io.MANIFEST` has of its head: the sha256 of every file that says what follows the states."""

    parts: dict[str, str]


def check_parts(folder: Path) -> None:
    """Raises ModelError unless the files of a folder's head are those that it was saved with.

    Folders of other libraries record nothing, and pass. The Transformer's files are not among these.

    >>> check_parts(Path("cross"))
    """
    manifest = folder / io.MANIFEST
    recorded: Mapping[str, str] = {}
    if manifest.is_file():
        recorded = io.read_json(manifest, _Manifest, ANEW, error=ModelError).get("parts", {})
    fitted = [name for name in (WHITENING_FILE, CODE_FILE) if (folder / name).is_file()]
    for name in dict.fromkeys((*recorded, *fitted)):
        file = io.below(folder, name, ModelError)
        actual = io.sha256_once(file) if file.is_file() else None
        if recorded.get(name) == actual:
            continue
        if actual is None:
            problem = "missing; this folder was saved with it"
            accept = f"remove its entry from parts in {manifest}"
        else:
            problem = "not the file that this folder was saved with"
            accept = f"make its entry of parts in {manifest} {actual}"
        raise ModelError(
            f"{file}: {problem}: restore the file, save the model again, or, to accept other vectors, {accept}."
        )


def says_head(folder: Path) -> bool:
    """Whether a model folder describes the steps after its Transformer.

    >>> says_head(Path("cross"))
    False
    """
    return (folder / "modules.json").is_file()


def own_pooling(folder: Path) -> str:
    """The pooling that gives a folder's own vectors: `"auto"`, or the mean if it describes no head.

    >>> own_pooling(Path("cross"))
    'mean'
    """
    return AUTO if says_head(folder) else "mean"


def longest_text(folder: Path, config: EncoderConfig) -> int:
    """The maximum sentence length in tokens of a folder of weights or a tokenizer.

    As in sentence-transformers, this is what the folder specifies, or else its tokenizer, but for that at most as many
    tokens as the model was trained for.

    >>> longest_text(Path("cross"), Encoder.from_pretrained("jaxwhiten-tiny").view.core.config)
    48
    """
    if config.model_type == "static":  # it has no positions, and the tokenizer's limit is its teacher's
        of_tokenizer = read_object(folder / "config.json", optional=True).get("max_length")
    elif (specified := TransformerSettings.read(folder).max_length) is not None:
        return min(specified, config.longest_input)
    else:
        of_tokenizer = read_object(folder / TOKENIZER_SETTINGS, optional=True).get("model_max_length")
    trained = config.max_positions - config.position_offset
    return min(of_tokenizer, trained) if type(of_tokenizer) is int and of_tokenizer > 0 else trained


def read_head(folder: Path, config: EncoderConfig) -> Head:
    """Reads the steps of a sentence-transformers folder after its Transformer or StaticEmbedding.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> read_head(encoder.save("model"), encoder.view.core.config).steps
    (Mean(),)

    Returns:
      The head, with the folder's default prompt.

    Raises:
      ModelError: There is no `modules.json`, weights are missing, or a module, mode or activation, which the message
        names, is not supported.
    """
    listed = _listed(folder)
    kinds = [kind for kind, _ in listed]
    where = folder / "modules.json"
    if (kinds[0], kinds.count("Pooling")) not in (("Transformer", 1), (STATIC, 0)):
        raise ModelError(f"{where}: lists {', '.join(kinds)}; expected one Transformer, then one Pooling.")
    static = kinds[0] == STATIC
    first = listed[0][1] if static else folders.ModelFolder(folder).transformer
    settings = TransformerSettings.read(first)
    settings.check_text_encoder()
    steps: list[Step]
    steps = [Mean()] if static else []
    width = config.hidden_size
    for kind, place in listed[1:]:
        classes = STEPS.get(kind, ())
        pooled = any(isinstance(step, Pooling) for step in steps)
        if kind in ("Transformer", STATIC) or any(issubclass(c, (StateStep, Pooling)) == pooled for c in classes):
            raise ModelError(f"{where}: {kind} is not supported at this position among {kinds}.")
        found = Found(place, folder, first, config, width)
        step = next((step for c in classes if (step := c.from_folder(found)) is not None), None)
        if step is not None:
            width = step.output_width(width)
            steps.append(step)
    if (folder / CODE_FILE).is_file():
        with folders.naming(folder / CODE_FILE):
            steps.append(Quantize.of(load_code(folder / CODE_FILE)))
            steps[-1].output_width(width)
    return Head.of(tuple(steps), TextForm(Settings.read(folder).default_prompt, settings.lower_case))


def _listed(folder: Path) -> list[tuple[str, Path]]:
    """Class name and folder of every module."""
    file = folder / "modules.json"
    if not says_head(folder):
        raise ModelError(f"{folder}: no modules.json, so pooling='auto' cannot be resolved; specify a pooling.")
    supported = [*_IGNORED, STATIC, *STEPS]
    listed = []
    for row in checkpoint.modules(folder):
        package, _, name = row["type"].rpartition(".")
        if package.split(".")[0] != "sentence_transformers" or name not in supported:
            raise ModelError(f"{file}: module {row['type']!r} is not supported. Supported: {', '.join(supported)}.")
        with folders.naming(file):
            listed.append((name, folder if row["path"] in ("", ".") else io.below(folder, row["path"], ModelError)))
    if not listed:
        raise ModelError(f"{file}: lists no modules.")
    return listed


def modules_of(head: Head, model: TransformerEncoder) -> list[StepModule]:
    """The modules of sentence-transformers that perform the steps of a head; `InputError` if there are none.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> [module.kind for module in modules_of(encoder.view.head, encoder.view.core.model())]
    ['Pooling']
    """
    config = model.config
    head.width(config)
    width = config.hidden_size
    modules = list[StepModule]()
    if model.pools and not isinstance(head.steps[0], Mean):
        raise InputError(f"{head.summary}: a static encoder supports only the mean of its tokens.")
    for step in head.steps:
        if not (model.pools and isinstance(step, Mean)):  # a static encoder's first module pools
            modules += step.to_folder(Target(config, width))
        width = step.output_width(width)
    return modules


def write_folder(
    folder: str | Path,
    model: TransformerEncoder,
    tokenizer: BulkTokenizer,
    head: Head,
    *,
    settings: Settings | None = None,
    dtype: str = "float32",
    card: str | None = None,
) -> Path:
    """Writes a model folder that sentence-transformers, transformers and jaxwhiten load.

    The folder must be new, empty, or made by jaxwhiten, in which case it is replaced as a whole. Nothing is written if
    a step of the head has no module. The default settings are the head's own prompt, and cosine similarity. `card` is
    the text of README.md.

    >>> view = Encoder.from_pretrained("jaxwhiten-tiny").view
    >>> write_folder("model", view.core.model(), view.core.tokenizer, view.head).name
    'model'
    """
    from safetensors.numpy import save_file

    from jaxwhiten.models.loading import save_model
    from jaxwhiten.models.static import StaticEncoder, save_static

    modules = modules_of(head, model)
    settings = settings or Settings(similarity_fn_name="cosine")
    with io.whole_folder(folder) as whole:
        if isinstance(model, StaticEncoder):
            unit_length = [module.kind for module in modules] == ["Normalize"]
            save_static(model, whole, unit_length=unit_length, max_length=tokenizer.max_length, dtype=dtype)
        else:
            save_model(model, whole, dtype=dtype)
        tokenizer.save(whole)
        listed = [_row(model.module, 0, "")]
        changes: dict[str, Any] = {}
        parts = ["modules.json"]
        for number, module in enumerate(modules, start=1):
            place = whole / f"{number}_{module.kind}"
            listed.append(_row(module.kind, number, place.name))
            place.mkdir(parents=True, exist_ok=True)
            changes |= module.transformer
            if module.config is not None:
                io.write_json(place / "config.json", dict(module.config))
            if module.tensors:
                with io.atomic_path(place / "model.safetensors") as temporary:
                    tensors = {name: np.ascontiguousarray(value) for name, value in module.tensors.items()}
                    save_file(tensors, temporary, metadata={"format": "pt"})
            parts += [f"{place.name}/{file.name}" for file in sorted(place.iterdir())]
        for step in head.steps:
            step.save_beside(whole)
        parts += [name for name in (WHITENING_FILE, CODE_FILE) if (whole / name).is_file()]
        if changes:
            io.write_json(whole / "config.json", read_object(whole / "config.json") | changes)
        if not model.pools:
            of_transformer = {"max_seq_length": tokenizer.max_length, "do_lower_case": head.form.lower_case}
            io.write_json(whole / SETTINGS_FILES[0], of_transformer)
        if head.form.prompt and not settings.default_prompt_name:
            prompts = {**settings.prompts, _UNNAMED: head.form.prompt}
            settings = dataclasses.replace(settings, prompts=prompts, default_prompt_name=_UNNAMED)
        settings.write(whole)
        if card is not None:
            io.write_text(whole / "README.md", card)
        io.write_json(whole / "modules.json", listed)
        io.write_json(whole / io.MANIFEST, {"parts": {name: io.sha256_file(whole / name) for name in parts}})
    return Path(folder)


def _row(kind: str, number: int, path: str) -> Json:
    return {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
