"""The STS tasks as a tensorflow-datasets builder: downloaded and prepared once, then read back.

TensorFlow is never imported: records are written as array records and read with `as_data_source`. This folder has its
own downloads, because the downloader and the extractor of tensorflow-datasets need TensorFlow. NLI and Quora have no
builder: reading their text takes seconds, preparing and reading a million records takes minutes.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from eval.data import protocol, remote
from eval.data.protocol import STS_TASKS
from eval.data.senteval import read_task
from jaxwhiten.datasets import Pairs, STSTask
from jaxwhiten.errors import REASON, DataError, JaxwhitenError, optional, turning
from jaxwhiten.io import PathLike
from jaxwhiten.types import Json

optional("tensorflow_datasets", "eval", "Downloading and preparing data", "tensorflow-datasets")
import tensorflow_datasets as tfds  # noqa: E402


class STSBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Scored sentence pairs, one config per task, without pairs that lack a gold score."""

    name = "sts"
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=task) for task in STS_TASKS]  # noqa: RUF012

    def _info(self) -> Any:
        text = tfds.features.Text()
        # Records store floats as float32; encoded as bytes, the gold scores keep float64.
        score = tfds.features.Tensor(shape=(), dtype=np.float64, encoding="bytes")
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict({"sentence1": text, "sentence2": text, "score": score, "subset": text}),
            disable_shuffling=True,
        )

    def _read(self, dl_manager: Any) -> STSTask:
        spec = protocol.TASK_SPECS[self.builder_config.name]
        folder = remote.senteval_folder(dl_manager.download_dir)
        try:
            return read_task(spec, folder)
        except DataError:
            shutil.rmtree(folder, ignore_errors=True)  # the next run then downloads it again
            raise

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        task = self._read(dl_manager)
        return {split: self._generate_examples(pairs) for split, pairs in task.splits.items()}

    def _generate_examples(self, pairs: Pairs) -> Iterator[tuple[int, Json]]:
        rows = zip(pairs.sentence1, pairs.sentence2, pairs.score, pairs.subset, strict=True)
        for i, (sentence1, sentence2, score, subset) in enumerate(rows):
            yield i, {"sentence1": sentence1, "sentence2": sentence2, "score": score, "subset": subset}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences the messages of tensorflow-datasets about its folders; its errors are still raised."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


def make_builder(task: str, data_dir: PathLike) -> STSBuilder:
    """The builder of a task, writing array records below `data_dir`."""
    with _quiet():
        return STSBuilder(config=task, data_dir=os.fspath(data_dir), file_format="array_record")


def prepare(builder: STSBuilder, download_dir: PathLike) -> None:
    """Downloads the files and writes a builder's records, unless they exist already."""
    if builder.is_prepared():
        return
    try:
        with _quiet():
            builder.download_and_prepare(download_dir=os.fspath(download_dir))
    except JaxwhitenError:
        raise
    except Exception as error:  # the record writer reports a full disk by exceptions of many types
        if builder.is_prepared():
            return  # another process was first
        raise DataError(f"{builder.data_path}: cannot be prepared ({error}).") from error


def read_prepared(builder: STSBuilder) -> STSTask:
    """Reads every split of a prepared builder of one of `STS_TASKS`, with rows in the order of the files."""
    task = builder.builder_config.name
    splits = {}
    damaged = f"{builder.data_path}: the prepared data of {task} is damaged ({REASON}). Delete this folder and rerun."
    with turning(DataError, damaged):  # the record reader raises exceptions of many types
        for split, counts in protocol.TASK_SPECS[task].counts.items():
            source = builder.as_data_source(split)
            rows = source.__getitems__(range(len(source)))
            text = {name: [row[name].decode() for row in rows] for name in ("sentence1", "sentence2", "subset")}
            if Counter(text["subset"]) != {subset: count.scored for subset, count in counts.items()}:
                raise ValueError(f"split {split} has {len(rows)} rows, not those of the protocol")
            splits[split] = Pairs(
                text["sentence1"],
                text["sentence2"],
                subset=text["subset"],
                score=np.array([row["score"] for row in rows], dtype=np.float64),
            )
    return STSTask(task, splits)
