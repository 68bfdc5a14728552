"""Views of many prompts take no more memory than one, and the prompts of an encoder are its own."""

import gc

import pytest

from jaxwhiten import Encoder
from jaxwhiten.head import Truncate
from jaxwhiten.views import View
from tests.tiny import SENTENCES

PROMPTS = {"query": "Music: ", "document": "salt "}


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, prompts=PROMPTS, engine="jax")


def views():
    gc.collect()
    return sum(type(each) is View for each in gc.get_objects())


def test_views_that_were_asked_for_are_not_kept(encoder):
    view, before = encoder.view, views()
    for number in range(20):
        view.with_prompt(f"{number % 3}: ")(SENTENCES[0])
        view.with_pooling(("cls", "max", "layers:0+1")[number % 3])
        view.with_prompt(f"{number}: ").with_prompt(f"{number}, ").cut(1 + number % view.width, number % 2 == 0)
    assert views() <= before + 1


def test_prompts_of_one_encoder_are_not_those_of_another(encoder):
    for one in (encoder.with_view(encoder.view.then(Truncate(4))), encoder):
        with pytest.raises(TypeError):
            one.prompts["query"] = "other: "
        with pytest.raises(AttributeError):
            one.prompts = {}
        assert one.prompts == PROMPTS
        assert one.queries.prompt == PROMPTS["query"]


def test_the_view_of_a_role_is_made_once(encoder):
    """Texts of one view share a batch of the server."""
    for role in ("query", "document"):
        assert encoder.view.in_role(role) is encoder.view.in_role(role)
        assert encoder.view.uncoded.in_role(role) is encoder.view.uncoded.in_role(role)
