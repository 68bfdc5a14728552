"""Views made of a model folder, or of a model in memory."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxwhiten.engines import DEFAULT, FASTEST, Engine, chosen, engine_class, engine_for, recorded
from jaxwhiten.errors import InputError, MismatchError, warn
from jaxwhiten.head import (
    AUTO,
    Head,
    Normalize,
    PoolingWarning,
    Quantize,
    Settings,
    Truncate,
    canonical,
    check_parts,
    longest_text,
    read_head,
    says_head,
)
from jaxwhiten.metrics.scores import SIMILARITIES
from jaxwhiten.models import EncoderConfig, folders
from jaxwhiten.space import Space
from jaxwhiten.text import prompt_named
from jaxwhiten.text.tokenization import has_tokenizer
from jaxwhiten.views.core import Core, copied, tokenizer_for
from jaxwhiten.views.view import View

if TYPE_CHECKING:
    from jaxwhiten.models import TransformerEncoder


def load_view(
    model: str | Path,
    *,
    pooling: str = AUTO,
    bare: bool = False,
    max_length: int | None = None,
    dtype: str | None = None,
    revision: str | None = None,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    truncate_dim: int | None = None,
    device: Any = None,
    engine: str = FASTEST,
    tuned: bool | None = None,
) -> tuple[View, Settings]:
    """The view of a model folder or hub id, and the settings of the folder with those of the caller.

    The arguments and the errors are those of `Encoder.from_pretrained`.
    """
    folder = folders.resolve_folder(model, revision=revision)
    pooling = canonical(pooling)
    dtype = dtype or "float32"
    files = folders.ModelFolder(folder)
    engine = chosen(engine, files, dtype, device)
    module, config, weights_folder = engine_class(engine).load(files, dtype)
    settings, head = read_parts(folder, config, str(model), pooling, bare)
    settings = dataclasses.replace(
        settings,
        prompts={**settings.prompts, **(prompts or {})},
        default_prompt_name=default_prompt_name or settings.default_prompt_name,
        truncate_dim=settings.truncate_dim if truncate_dim is None else truncate_dim,
        tuned=settings.tuned if tuned is None else tuned,
    )
    if max_length is None:
        max_length = longest_text(weights_folder, config)
    tokenizer_folder = weights_folder if has_tokenizer(weights_folder) else folder
    place = str(model)
    if Path(model).is_dir():
        place = str(Path(model).resolve())
    view = make_view(
        module,
        tokenizer_folder,
        pooling="mean" if pooling == AUTO else pooling.removeprefix(f"{AUTO}:"),
        max_length=max_length,
        name=str(model),
        head=head,
        prompts=settings.prompts,
        default_prompt_name=settings.default_prompt_name,
        engine=engine_for(engine, module, max_length, device, dtype),
        tuned=settings.tuned,
        bare=bare,
        source=functools.partial(
            load_view,
            place,
            pooling="mean",
            bare=True,
            max_length=max_length,
            dtype=dtype,
            revision=revision,
            device=device,
            engine=engine,
        ),
    )
    _ = view.core.digest  # while the files are there
    if settings.truncate_dim is not None:
        view = view.then(Truncate(settings.truncate_dim))
    if head is not None and pooling != AUTO:
        view = view.with_pooling(pooling)
    return view, settings


def reopened(
    space: Space,
    *,
    model: str | None = None,
    engine: str | None = None,
    tuned: bool | None = None,
) -> tuple[View, Settings]:
    """The view of the model that made vectors of a space, with its prompts and the settings of its folder.

    Args:
      space: The space; a plain pooling in it stands alone. Its prompts are taken if the folder has none.
      model: Where the model is now, if it has moved.
      engine: By default one that gives the same vectors: any in float32, else the recorded one.
      tuned: Whether the model is fine-tuned for similarity; by default as its folder records.

    Raises:
      MismatchError: The model there cannot have made the vectors, because it reads shorter texts.
    """
    place = str(model or space.model)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PoolingWarning)  # the pooling is recorded
            view, settings = load_view(
                place,
                pooling=space.pooling or AUTO,
                bare=True,
                max_length=space.max_length,
                dtype=space.dtype,
                engine=engine or recorded(space),
                tuned=tuned,
            )
    except InputError as error:
        if not str(error).startswith("max_length="):
            raise
        raise MismatchError(
            f"{place}: is not the model of these vectors ({str(error).removesuffix('.')}): specify theirs."
        ) from None
    if view.space.head != space.head == view.unfitted.space.head:  # made before the folder got its whitening or code
        view = view.unfitted
    own = view.space.prompts or {}
    if space.prompts and space.prompts != own and not any(own.values()):  # given in memory, or the default was
        if view.space.fingerprint == space.fingerprint:
            view = view.over(dataclasses.replace(view.core, prompts={**view.core.prompts, **space.prompts}))
        else:
            view = view.with_head(view.head.with_prompt(space.prompts.get("document", "")))
    return view, settings


def make_view(
    model: TransformerEncoder,
    tokenizer_folder: str | Path,
    *,
    pooling: str = "mean",
    max_length: int | None = None,
    name: str = "",
    head: Head | None = None,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    device: Any = None,
    engine: str | Engine = DEFAULT,
    tuned: bool | None = None,
    bare: bool = False,
    source: Callable[[], tuple[View, Any]] | None = None,
) -> View:
    """The view of a model in memory; the arguments are those of `Encoder`, and `bare` and `source` those of `Core`."""
    tokenizer = tokenizer_for(model, Path(tokenizer_folder), max_length)
    if isinstance(engine, str):
        engine = engine_for(engine, copied(model), tokenizer.max_length, device)
    core = Core(
        engine=engine,
        tokenizer=tokenizer,
        config=model.config,
        name=name or str(tokenizer_folder),
        prompts=dict(prompts or {}),
        tuned=tuned,
        bare=bare,
        source=source,
    )
    head = head or Head.named(pooling, core)
    if default_prompt_name is not None:
        head = head.with_prompt(prompt_named(core.prompts, default_prompt_name))
    return View.of(core, head)


def read_parts(
    folder: Path, config: EncoderConfig, name: str, pooling: str, bare: bool
) -> tuple[Settings, Head | None]:
    """The settings and the head of a folder, which messages call `name`.

    If a pooling is named `bare`, or the folder has no head, settings that belong to a head are left out.
    """
    check_parts(folder)
    settings = Settings.read(folder)
    if settings.similarity_fn_name not in SIMILARITIES:  # a folder may name a similarity of multi-vector models
        settings = dataclasses.replace(settings, similarity_fn_name=None)
    if says_head(folder) and (pooling.startswith(AUTO) or not bare):
        head = read_head(folder, config)
        if settings.truncate_dim is not None:
            settings = dataclasses.replace(settings, truncate_dim=min(settings.truncate_dim, head.width(config)))
        if settings.similarity_fn_name not in (None, "cosine") and not isinstance(head.steps[-1], Normalize | Quantize):
            warn(
                f"{name} specifies the similarity {settings.similarity_fn_name!r}, and its vectors are not of unit"
                " length: scores of pairs use it, but searches and codes rank by cosine.",
            )
        return settings, head
    if pooling == AUTO:
        warn(
            f"{name} specifies no pooling: using the mean. Encoders not fine-tuned for similarity often do better with"
            " pooling='first_last_avg'; pooling='mean' silences this.",
            PoolingWarning,
        )
    return dataclasses.replace(settings, default_prompt_name=None, truncate_dim=None), None
