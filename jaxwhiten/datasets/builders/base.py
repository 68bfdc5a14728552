"""What the builders share: features, where the files come from, and reading prepared data back.

TensorFlow is never imported: records are written as array records and read with `as_data_source`. The downloads are
this package's own, because the downloader and the extractor of tensorflow-datasets need TensorFlow.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from jaxwhiten.datasets import protocol, remote
from jaxwhiten.datasets.nli import NLIRows, read_nli
from jaxwhiten.datasets.protocol import SAMPLE, Pairs, STSTask
from jaxwhiten.datasets.sample import load_sample
from jaxwhiten.datasets.senteval import read_task
from jaxwhiten.errors import DataError, JaxwhitenError, missing_dependency

try:
    import tensorflow_datasets as tfds
except ImportError:
    raise missing_dependency("tensorflow-datasets", "data", "Downloading and preparing data") from None

_MANUAL = "Optional: a SentEval-style folder (one that holds `downstream`), read instead of downloading."


def _manual_dir(dl_manager: Any) -> Path | None:
    """The folder the user gave, where it is there and not empty."""
    try:
        return Path(dl_manager.manual_dir)
    except AssertionError:
        return None


class STSBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder of scored sentence pairs; subclasses name the task."""

    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = _MANUAL
    TASK: ClassVar[str]

    def _info(self) -> Any:
        text = tfds.features.Text()
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"{self.TASK}: scored sentence pairs; pairs without a gold score are left out.",
            features=tfds.features.FeaturesDict(
                {"sentence1": text, "sentence2": text, "score": np.float32, "subset": text}
            ),
            disable_shuffling=True,
        )

    def _read(self, dl_manager: Any) -> STSTask:
        if self.TASK == SAMPLE:
            return load_sample()
        spec = protocol.TASK_SPECS[self.TASK]
        if manual := _manual_dir(dl_manager):
            return read_task(spec, manual)
        folder = remote.senteval_folder(dl_manager.download_dir)
        try:
            return read_task(spec, folder)
        except DataError:
            shutil.rmtree(folder, ignore_errors=True)  # what was downloaded is bad: fetch it again next time
            raise

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        task = self._read(dl_manager)
        return {split: self._generate_examples(pairs) for split, pairs in task.splits.items()}

    def _generate_examples(self, pairs: Pairs) -> Iterator[tuple[int, dict[str, Any]]]:
        rows = zip(pairs.sentence1, pairs.sentence2, pairs.score, pairs.subset, strict=True)
        for i, (sentence1, sentence2, score, subset) in enumerate(rows):
            yield i, {"sentence1": sentence1, "sentence2": sentence2, "score": score, "subset": subset}


class NLIBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder of NLI rows: label 0 entailment, 1 neutral, 2 contradiction, -1 two-way only."""

    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = _MANUAL
    SPLITS = ("train", "dev", "test")

    def _info(self) -> Any:
        text = tfds.features.Text()
        return tfds.core.DatasetInfo(
            builder=self,
            description="Premises and hypotheses with their labels; rows without an agreed label are left out.",
            features=tfds.features.FeaturesDict(
                {"premise": text, "hypothesis": text, "label": np.int64, "source": text}
            ),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        folder = _manual_dir(dl_manager) or remote.allnli_folder(dl_manager.download_dir)
        parts = {split: read_nli(folder, splits=[split], two_way="keep") for split in self.SPLITS}
        found = {
            split: self._generate_examples(rows) for split, rows in parts.items() if rows is not None and len(rows)
        }
        if not found:
            raise DataError(f"{folder}: no NLI rows in it; expected AllNLI.tsv.gz or a folder nli.")
        return found

    def _generate_examples(self, rows: NLIRows) -> Iterator[tuple[int, dict[str, Any]]]:
        columns = zip(rows.premise, rows.hypothesis, rows.label, rows.source, strict=True)
        for i, (premise, hypothesis, label, source) in enumerate(columns):
            yield i, {"premise": premise, "hypothesis": hypothesis, "label": int(label), "source": source}


def builder_name(task: str) -> str:
    """A task's builder and package: the name in lower case, such as `sts12`, `sts_b`, `sick_r`."""
    return task.lower().replace("-", "_")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what tensorflow-datasets announces about its folders off the screen; its errors are raised all the same."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


def make_builder(name: str, data_dir: str | os.PathLike[str]) -> Any:
    """A builder by its name, writing array records below `data_dir`."""
    module = importlib.import_module(f"jaxwhiten.datasets.builders.{name}.{name}_dataset_builder")
    with _quiet():
        return module.Builder(data_dir=os.fspath(data_dir), file_format="array_record")


def prepare(
    builder: Any, download_dir: str | os.PathLike[str], manual_dir: str | os.PathLike[str] | None = None
) -> None:
    """Downloads and writes a builder's records, unless they are there already.

    Args:
      builder: The builder.
      download_dir: Where downloads are kept.
      manual_dir: A SentEval-style folder to read instead of downloading.

    Raises:
      DataNotFoundError: No network.
      DataError: The data is not what it should be, or the disk is full.
    """
    if builder.is_prepared():
        return
    config = tfds.download.DownloadConfig(manual_dir=manual_dir)
    try:
        with _quiet():
            builder.download_and_prepare(download_dir=os.fspath(download_dir), download_config=config)
    except JaxwhitenError:
        raise
    except Exception as error:  # a full disk shows as errors of many kinds in the record writer
        if builder.is_prepared():
            return  # another process was first
        raise DataError(f"{builder.data_path}: cannot be prepared ({error}).") from error


def read_prepared(builder: Any, task: str) -> STSTask:
    """Reads every split of a prepared STS builder back.

    Args:
      builder: The builder.
      task: The task's name.

    Returns:
      The task, rows in the order of the files.

    Raises:
      DataError: The prepared files are damaged; the message names the folder to delete.
    """
    spec = protocol.TASK_SPECS[task]
    splits = {}
    try:
        for split, counts in spec.counts.items():
            source = builder.as_data_source(split)
            rows = source.__getitems__(range(len(source)))
            subsets = [row["subset"].decode() for row in rows]
            if Counter(subsets) != {subset: count.scored for subset, count in counts.items()}:
                raise ValueError(f"split {split} has {len(rows)} rows, not those of the protocol")
            splits[split] = Pairs(
                sentence1=[row["sentence1"].decode() for row in rows],
                sentence2=[row["sentence2"].decode() for row in rows],
                # Records hold float32; its shortest decimal form is the gold score as it was written.
                score=np.array([row["score"] for row in rows], dtype=np.float32).astype(str).astype(np.float64),
                subset=subsets,
            )
    except Exception as error:  # the record reader raises errors of many kinds
        raise DataError(
            f"{builder.data_path}: the prepared data of {task} is damaged ({str(error)[:120]}). Delete this folder and"
            " run again."
        ) from error
    return STSTask(task, splits)
