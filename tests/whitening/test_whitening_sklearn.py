"""scikit-learn's own checks of the estimator, and its place among scikit-learn's tools."""

import sys

import numpy as np
import pytest

from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import InputError, MissingDependencyError, NotFittedError
from jaxwhiten.whitening.whitening import Whitening, WhiteningWarning

pytest.importorskip("sklearn")
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

# The checks fit on tiny data, which is what the warning is about.
# It is an estimator by its methods alone, which scikit-learn warns of.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{WhiteningWarning.__module__}.{WhiteningWarning.__name__}"),
    pytest.mark.filterwarnings("ignore:.*does not inherit from:UserWarning"),
]


@pytest.mark.parametrize(
    "estimator", [Whitening(), Whitening(beta=0.5, gamma=0.5, shrinkage="oas")], ids=["default", "shrunk"]
)
def test_check_estimator(estimator):
    results = check_estimator(estimator, on_skip=None, on_fail="raise")
    status = {r["check_name"]: r["status"] for r in results}
    assert len(status) > 40
    # Array API input is checked only where $SCIPY_ARRAY_API asks for it.
    assert {name for name, s in status.items() if s != "passed"} <= {"check_array_api_input"}


def test_works_in_a_pipeline_and_a_grid_search():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6)) * [100, 1, 1, 1, 1, 1]
    y = (X[:, 1] > 0).astype(int)
    search = GridSearchCV(
        make_pipeline(Whitening(), KNeighborsClassifier()), {"whitening__gamma": [0.0, 1.0], "whitening__beta": [1.0]}
    ).fit(X, y)
    assert search.best_params_["whitening__gamma"] == 1.0


def test_clone_keeps_parameters_only():
    fitted = Whitening(n_components=2, gamma=0.5).fit(np.random.default_rng(0).standard_normal((50, 3)))
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(SklearnNotFittedError) as caught:
        copy.transform(np.eye(3))
    assert isinstance(caught.value, NotFittedError)


@pytest.mark.parametrize("method", [Whitening(n_components=2), SpectrumCode(bytes=1)], ids=repr)
def test_data_frames(method, monkeypatch):
    """Scikit-learn's own checks, below, have those of Polars."""
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(0).standard_normal((50, 3))
    expected = method.fit(X).transform(X)
    names = [f"{type(method).__name__.lower()}{i}" for i in range(expected.shape[1])]
    assert method.get_feature_names_out(["a", "b", "c"]).tolist() == names
    frame = clone(method.set_output(transform="pandas")).fit_transform(pandas.DataFrame(X, index=range(5, 55)))
    assert (list(frame.columns), list(frame.index)) == (names, list(range(5, 55)))
    np.testing.assert_allclose(frame.to_numpy(), expected, atol=1e-12)
    with config_context(transform_output="polars"):
        assert isinstance(method.set_output().transform(X), pandas.DataFrame)
        assert method.set_output(transform="default").transform(X).shape == expected.shape
    with pytest.raises(InputError, match="'pandas'"):
        method.set_output(transform="panda")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingDependencyError, match="pip install polars"):
        method.set_output(transform="polars").transform(X)
    with pytest.raises(NotFittedError):
        clone(method).get_feature_names_out()


@pytest.mark.parametrize(
    "check",
    [
        *("set_output_transform", "set_output_transform_pandas", "set_output_transform_polars"),
        *("global_output_transform_pandas", "global_set_output_transform_polars", "transformer_get_feature_names_out"),
    ],
)
def test_checks_that_check_estimator_leaves_to_transformers_of_scikit_learn(check):
    getattr(estimator_checks, f"check_{check}")("Whitening", Whitening())
