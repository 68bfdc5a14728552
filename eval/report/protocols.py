"""How each program measures, as text for captions: the `protocol` of a run's header."""

from typing import NotRequired, TypedDict  # without `annotations` of the future, because a TypedDict reads NotRequired


class _WordsProtocol(TypedDict, total=False):
    words: dict[str, str]


class STSProtocol(_WordsProtocol):
    """How `eval.sts` scores; `whitening` describes the texts of each fit, `words` each baseline, by name."""

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


class CodesProtocol(TypedDict):
    """How `eval.codes` measures."""

    max_length: int
    quality: str
    outside: str
    rescored: str
    sts: str
    classified: NotRequired[str]


class StaticProtocol(TypedDict):
    """How `eval.static` measures."""

    corpus: str
    dev: str
    empty_sentence: str
    timed: str
