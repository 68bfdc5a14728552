"""Sentences for tests and for the processes that they start, which import nothing else for them."""

import random

SENTENCES = [
    "A man plays a guitar on the street.",
    "Someone makes music outside.",
    "The committee rejected the plan on Tuesday.",
    "Stir the sauce until it thickens, then add salt.",
    "Water boils at 100 °C at sea level.",
    "Why does my laptop shut down when it gets hot?",
    "Two dogs run through the snow.",
    "",
    "Short.",
    "A much longer sentence that goes on and on about nothing in particular, with commas, numbers such as 1984.",
]
TEXTS = [text for text in SENTENCES if text]


def generated(n, seed=0):
    """Different sentences of words that the tiny tokenizer knows."""
    words = sorted({word for text in TEXTS for word in text.split()})
    rng = random.Random(seed)
    return [" ".join(rng.sample(words, rng.randint(3, 9))) for _ in range(n)]
