"""How each program measures, in words for captions: the `protocol` of a run's header."""

from __future__ import annotations

from typing import TypedDict


class _WordsProtocol(TypedDict, total=False):
    words: dict[str, str]


class STSProtocol(_WordsProtocol):
    """How `eval.sts` scores; `whitening` says by name what each was fitted on, `words` what each baseline is."""

    max_length: int
    empty_sentence: str
    pairs: str
    correlation: str
    similarity: str
    whitening: dict[str, str]
    methods: str


class RetrievalProtocol(_WordsProtocol):
    """How `eval.retrieval` measures; `words` as for `eval.sts`."""

    max_length: int
    quality: str
    time: str
    time_with_whitening: str
    index_recall: str
    single: str
    memory: str
    target: str


class _CodesProtocol(TypedDict):
    max_length: int
    quality: str
    outside: str
    rescored: str
    sts: str


class CodesProtocol(_CodesProtocol, total=False):
    """How `eval.codes` measures."""

    classified: str


class StaticProtocol(TypedDict):
    """How `eval.static` measures."""

    corpus: str
    dev: str
    empty_sentence: str
    timed: str
