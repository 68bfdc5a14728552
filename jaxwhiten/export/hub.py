"""Uploads an encoder to the Hugging Face hub, as a folder for sentence-transformers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError, OutputError
from jaxwhiten.export.sentence_transformers import export_sentence_transformer


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
            told = str(getattr(error, "server_message", None) or error).strip().splitlines()[:1]
            raise OutputError(
                f"{repo_id}: could not be uploaded ({type(error).__name__}{': ' if told else ''}{''.join(told)})."
                " Check the name, the connection and the token (`hf auth login`); exist_ok=True writes to an existing"
                " repository."
            ) from error
    return str(done.pr_url or done.commit_url)
