"""Model folders that sentence-transformers, transformers and `Encoder.from_pretrained` load, also on the hub.

And whether an encoder gives what sentence-transformers gives with the same folder.
"""

from __future__ import annotations

import dataclasses
import importlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxwhiten.encoding import Encoder
from jaxwhiten.encoding.encoder import check_saving, settings_of
from jaxwhiten.errors import InputError, MismatchError, OutputError, optional
from jaxwhiten.export.cards import head_card, model_card
from jaxwhiten.head import Head, Truncate, write_folder
from jaxwhiten.metrics import cosine_pairs
from jaxwhiten.models.folders import resolve_folder
from jaxwhiten.types import Fields

_ALLOWED = 1e-4  # difference of an entry, relative to the largest one if that is above 1
_BYTES = 0.05  # share of bytes of codes, whose values may lie on the border of two bytes


def save_trained(
    folder: str | Path,
    encoder: Encoder,
    *,
    base_model: str,
    recipe: Fields,
    scores: Mapping[str, float],
    before: Mapping[str, float],
    name: str | None = None,
) -> Path:
    """Writes a trained encoder, weights in float32, with a model card, and returns the folder.

    `base_model` is the model before training, `recipe` the settings of the run, `scores` and `before` the scores × 100
    by name, after training and before. `folder` and `name` are as for `export_sentence_transformer`.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> save_trained("tuned", encoder, base_model="bert", recipe={}, scores={}, before={}).name
    'tuned'
    """
    folder = Path(folder)
    name = name or folder.resolve().name
    card = model_card(name, encoder, base_model=base_model, recipe=recipe, scores=scores, before=before)
    settings = settings_of(encoder)
    head = encoder.view.head
    if isinstance(last := head.steps[-1], Truncate):  # a setting of folders, which would be read as a layer to train
        settings = dataclasses.replace(settings, truncate_dim=last.k)
        head = Head.of(head.steps[:-1], head.form)
    return write_folder(
        folder, encoder.view.core.model(), encoder.view.core.tokenizer, head, settings=settings, card=card
    )


def export_sentence_transformer(
    folder: str | Path, encoder: Encoder, *, name: str | None = None, scores: Mapping[str, float] | None = None
) -> Path:
    """Writes an encoder and its head as a folder with a model card, ready to upload.

    >>> folder = export_sentence_transformer("st", Encoder.from_pretrained("jaxwhiten-tiny"))
    >>> Encoder.from_pretrained(folder).dimension
    256

    Args:
      folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole. It is returned.
      name: Name of the model in the card; by default the folder's name.
      scores: Spearman × 100, by task, for the card.

    Raises:
      InputError: The head has a step that such a folder cannot hold, or the folder is the model's own.
    """
    check_saving(encoder, folder)
    return encoder.save(folder, card=head_card(name or Path(folder).resolve().name, encoder, scores or {}))


def push_to_hub(
    encoder: Encoder,
    repo_id: str,
    *,
    token: str | None = None,
    private: bool | None = None,
    exist_ok: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str = "Add an encoder written by jaxwhiten",
    scores: Mapping[str, float] | None = None,
) -> str:
    """Uploads an encoder with its head, its whitening and a model card to the Hugging Face hub, in one commit.

    >>> push_to_hub(Encoder.from_pretrained("jaxwhiten-tiny"), "NAME/my-encoder")  # doctest: +SKIP

    Args:
      repo_id: `"NAME"` or `"ORGANISATION/NAME"`; made if missing.
      token: Access token of the hub; by default the one from `hf auth login` or `HF_TOKEN`.
      private: Whether a new repository is private; by default as set in the account.
      exist_ok: Whether the repository may exist already.
      revision: The branch to commit to, made if missing; by default `main`.
      create_pr: Whether to open a pull request instead.
      scores: Spearman × 100 by task, for the model card.

    Returns:
      The address of the commit, or of the pull request.

    Raises:
      InputError: The name is invalid for a repository, or the head has a step that such a folder cannot hold.
      OutputError: The hub cannot be reached, or refuses; the message contains its answer.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError

    api = HfApi(token=token)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / repo_id.rpartition("/")[2]
        export_sentence_transformer(folder, encoder, scores=scores)
        try:
            repo_id = api.create_repo(repo_id, private=private, exist_ok=exist_ok or create_pr).repo_id
            if revision is not None:
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            done = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=revision,
                create_pr=create_pr,
            )
        except HFValidationError as error:
            raise InputError(f"{repo_id!r} is not a valid repository ID: {error}") from error
        except Exception as error:  # without a network the HTTP client's own, whose types change
            lines = str(getattr(error, "server_message", None) or error).strip().splitlines()[:1]
            raise OutputError(
                f"{repo_id}: could not be uploaded ({type(error).__name__}{': ' if lines else ''}{''.join(lines)})."
                " Check the name, the connection and the token (`hf auth login`); exist_ok=True writes to an existing"
                " repository."
            ) from error
    return str(done.pr_url or done.commit_url)


def check_vectors(encoder: Encoder, name: str, texts: Sequence[str]) -> str:
    """Compares the vectors of an encoder, before a code, with those that sentence-transformers gives of its folder.

    Returns:
      What was found, in words.

    Raises:
      MismatchError: The vectors differ.
      MissingDependencyError: sentence-transformers is not installed.
    """
    actual = np.asarray(encoder.encode(texts, precision="float32"))
    library = optional("sentence_transformers", "parity", "The comparison", "sentence-transformers")
    importlib.import_module("transformers.utils.logging").disable_progress_bar()
    peer = library.SentenceTransformer(str(resolve_folder(name)), device="cpu", model_kwargs={"dtype": "float32"})
    expected = peer.encode(texts, batch_size=1, show_progress_bar=False)  # its padding takes no part
    if actual.shape != expected.shape:
        raise MismatchError(f"{actual.shape[1]} dimensions; sentence-transformers gives {expected.shape[1]}.")
    difference = float(np.abs(actual - expected).max() / max(1.0, np.abs(expected).max()))
    found = f"smallest cosine {cosine_pairs(actual, expected).min():.7f}, largest difference {difference:.1e}"
    if not difference <= _ALLOWED:
        raise MismatchError(f"not those of sentence-transformers: {found}; expected up to {_ALLOWED:.0e}.")
    return f"those of sentence-transformers for {len(texts)} texts by {encoder.view.core.engine.name}: {found}"


def check_codes(encoder: Encoder, texts: Sequence[str]) -> str:
    """Compares the codes of an encoder with those of its vectors; MismatchError if many of their bytes differ."""
    code = encoder.view.head.code
    assert code is not None
    expected = code.encode(encoder.encode(texts, precision="float32"))
    share = float((np.asarray(encoder.encode(texts)) != np.asarray(expected)).mean())
    if share > _BYTES:
        raise MismatchError(f"{share:.0%} of the bytes are not those of the vectors.")
    return f"{code.name}, {code.nbytes} bytes: those of the vectors"
