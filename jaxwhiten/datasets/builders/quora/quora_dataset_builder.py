"""Quora duplicate questions: 404,290 pairs with the ids of their questions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from jaxwhiten.datasets.builders.base import _manual_dir
from jaxwhiten.datasets.quora import download_quora, quora_file
from jaxwhiten.datasets.retrieval import read_rows
from jaxwhiten.errors import DataNotFoundError

_log = logging.getLogger(__name__)


class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Quora duplicate questions: one row a pair, malformed rows counted and left out."""

    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = "Optional: a folder with quora_duplicate_questions.tsv, read instead of downloading."

    def _info(self) -> Any:
        text = tfds.features.Text()
        return tfds.core.DatasetInfo(
            builder=self,
            description="Pairs of questions asked on Quora and whether they are duplicates.",
            features=tfds.features.FeaturesDict(
                {"qid1": text, "qid2": text, "question1": text, "question2": text, "is_duplicate": np.int64}
            ),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        manual = _manual_dir(dl_manager)
        path = quora_file(manual) if manual else download_quora(dl_manager.download_dir)
        if path is None:
            raise DataNotFoundError(f"{manual}: no quora_duplicate_questions.tsv in it.")
        return {"train": self._generate_examples(path)}

    def _generate_examples(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        rows, malformed = read_rows(path)
        if malformed:
            _log.warning("%s: %d malformed rows left out", path, malformed)
        for i, (qid1, qid2, question1, question2, duplicate) in enumerate(rows):
            ids, texts = {"qid1": qid1, "qid2": qid2}, {"question1": question1, "question2": question2}
            yield i, {**ids, **texts, "is_duplicate": int(duplicate)}
