"""LoRA and adapters: they start as the unchanged model, leave it frozen, and end as an ordinary folder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.export import save_trained
from jaxwhiten.options import TrainingOptions
from jaxwhiten.training.objectives import OBJECTIVES, make_plan
from jaxwhiten.training.sentences import sentence_batches
from jaxwhiten.training.step import create_state, data_mesh, make_step, place_batch
from tests.tiny import FAMILIES, SENTENCES, write_model
from tests.training.setups import changed, setup_for
from train import adapters

TEXTS = [text or "Nothing." for text in SENTENCES]
COLUMNS = [TEXTS[:8], TEXTS[2:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "base"
    return write_model(folder, num_layers=2, dropout=0.0, attention_dropout=0.0)


@pytest.mark.slow
def test_a_decoder_learns_whole_and_by_lora(tmp_path, fresh_cache):
    qwen3 = {"model_type": "qwen3", "norm": "rms", "output_norms": False, "embedding_scale": 1.0, "query_scalar": 0.0}
    changes = FAMILIES["gemma3_text"] | qwen3 | {"num_layers": 2, "local_layers": (), "hidden_act": "silu"}
    folder = write_model(tmp_path / "base", **changes)
    setup = setup_for(folder, COLUMNS)
    for plan in (adapted(setup, lora_projections=("query", "value")), make_plan("mnr", setup)):
        params, losses = trained(setup, plan, steps=3)
        assert losses[-1] < losses[0]
        assert np.isfinite(jax.tree.leaves(params)[0]).all()


@pytest.fixture
def setup(folder, fresh_cache):
    return setup_for(folder, COLUMNS)


def adapted(setup, objective="mnr", **settings):
    return make_plan(objective, changed(setup, **{"lora": 4, **settings}))


def batches(setup, plan):
    return sentence_batches(setup.table, plan.labels, plan.vectors, batch_size=8, buckets=1)


def trained(setup, plan, steps=5):
    """The parameters after some steps, and the loss before each."""
    how = TrainingOptions(steps=steps, batch_size=8, learning_rate=1e-2, warmup=0.0)
    mesh = data_mesh(how)
    state, source, found = create_state(plan.params, how, mesh), batches(setup, plan), []
    step = make_step(plan.loss, how, mesh, plan.frozen)
    for _ in range(steps):
        state, metrics = step(state, place_batch(next(source), mesh))
        found.append(float(metrics["loss"]))
    return jax.device_get(state.params), found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora", *adapters.KINDS])
def test_an_adapter_starts_as_the_model_learns_and_is_exported_whole(setup, folder, tmp_path, kind):
    if kind == "lora":
        plan = adapted(setup)
    else:
        plan = make_plan(adapters.on_vectors(OBJECTIVES["mnr"], kind, rank=4), setup)
    plain = make_plan("mnr", setup)
    before = Encoder.from_pretrained(folder, pooling="mean", max_length=32).encode(TEXTS)
    np.testing.assert_allclose(plan.encoder(plan.params).encode(TEXTS), before, atol=1e-6)
    batch = jax.tree.map(jnp.asarray, next(batches(setup, plan)))
    params = plan.params if plan.frozen is None else {**plan.params, "frozen": plan.frozen}
    first, expected = (
        jax.jit(one.loss)(params, batch, jax.random.key(0))[0]
        for one, params in ((plan, params), (plain, plain.params))
    )
    assert float(first) == pytest.approx(float(expected), abs=1e-5)

    params, found = trained(setup, plan)
    assert found[-1] < found[0] - 0.01
    assert len(jax.tree.leaves(params)) < 10, "only the adapter is trained"
    after = plan.encoder(params).encode(TEXTS)
    assert np.abs(after - before).max() > 1e-2
    np.testing.assert_allclose(Encoder.from_pretrained(folder, pooling="mean", max_length=32).encode(TEXTS), before)

    out = save_trained(tmp_path / "out", plan.encoder(params), base_model="base", recipe={}, scores={}, before={})
    np.testing.assert_allclose(Encoder.from_pretrained(out).encode(TEXTS), after, atol=1e-5)


def test_merged_weights_give_the_products_of_the_paper(setup):
    """W x + alpha / rank · B A x, and no other weight moves."""
    plan = adapted(setup, lora_projections=("value", "up"), lora_alpha=6.0)
    rng = np.random.default_rng(0)
    adapter = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), plan.params["encoder"])
    assert sorted(adapter) == [
        f"layers/{i}/{at}/kernel" for i in (0, 1) for at in ("attention/value", "feed_forward/up")
    ]
    old, new = setup.model.layers[1], plan.rebuild(adapter).layers[1]
    x = rng.normal(size=(3, 32)).astype(np.float32)
    part = adapter["layers/1/feed_forward/up/kernel"]
    expected = old.feed_forward.up(x) + 6.0 / 4 * (x @ part["down"]) @ part["up"]
    np.testing.assert_allclose(new.feed_forward.up(x), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(new.attention.query.kernel[...], old.attention.query.kernel[...])
    np.testing.assert_array_equal(new.feed_forward.down.kernel[...], old.feed_forward.down.kernel[...])


@pytest.mark.slow
def test_lora_serves_an_objective_with_a_teacher(folder, fresh_cache):
    one = setup_for(folder, COLUMNS[:1], teacher=str(folder), teacher_pooling="cls")
    plan = adapted(one, "distil_mse")
    _, found = trained(one, plan)
    assert found[-1] < found[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora_projections": ("quer",)}, "Did you mean 'query'"),
        ({"lora": 33}, "rank 33"),
        ({"lora_projections": ()}, "needs projections"),
    ],
)
def test_mistakes_are_named(setup, settings, message):
    with pytest.raises(InputError, match=message):
        adapted(setup, **settings)
