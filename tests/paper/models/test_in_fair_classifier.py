from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

import evenhand as eh
from classifiers import paper_classifier
from evenhand.paper.models import MLP, CLIPZeroShot, attribute_prompts


def make_rows(n=500):
    rng = np.random.default_rng(0)
    group = np.where(rng.random(n) < 0.4, "b", "a")
    X = rng.normal(size=(n, 3)) + (group == "b")[:, None]
    y = (X[:, 0] + 0.5 * rng.normal(size=n) > 0.5).astype(int)
    return X, y, group


def gap(decided, group, rows):
    return abs(decided[rows & (group == "a")].mean() - decided[rows & (group == "b")].mean())


@pytest.fixture(autouse=True)
def quiet():
    """What FairClassifier says of small samples and weak auxiliary models is no matter of these tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.errors.EvenhandWarning)
        yield


@pytest.mark.parametrize("criterion", ["demographic_parity", "equalized_odds"])
def test_the_mlp_is_cross_fitted_on_labels_groups_and_joint_labels(criterion, tmp_path):
    X, y, group = make_rows()
    model = MLP(max_epochs=12, lr=0.02, batch_size=64, checkpoint=tmp_path, random_state=0)
    base = MLP(**model.get_params()).fit(X, y).predict(X)
    fair = eh.FairClassifier(model, criterion=criterion, tolerance=0.1, cv=2, random_state=0)
    decided = fair.fit(X, y, sensitive_features=group).predict(X)
    events = [np.ones(len(y), dtype=bool)] if criterion == "demographic_parity" else [y == 0, y == 1]
    assert max(gap(decided, group, rows) for rows in events) < max(gap(base, group, rows) for rows in events)
    again = eh.FairClassifier(model, criterion=criterion, tolerance=0.1, cv=2, random_state=0)
    np.testing.assert_array_equal(
        again.fit(X, y, sensitive_features=group).decision_function(X), fair.decision_function(X)
    )


def test_two_heads_serve_as_estimator_and_auxiliary():
    X, y, group = make_rows()
    network = MLP(max_epochs=20, lr=0.02, batch_size=64, random_state=0)
    network.fit(X[:250], np.column_stack([y.astype(object), group])[:250])
    fair = eh.FairClassifier(
        FrozenEstimator(network.head(0)),
        auxiliary=FrozenEstimator(network.head(1)),
        criterion="demographic_parity",
        tolerance=0.05,
        cv=None,
    ).fit(X[250:], y[250:], sensitive_features=group[250:])
    everyone = np.ones(250, dtype=bool)
    assert gap(fair.predict(X[250:]), group[250:], everyone) <= 0.05 + 1e-12


class Brightness(ClassifierMixin, BaseEstimator):
    """A label model on image files that has nothing to learn."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X):
        from PIL import Image

        red = np.array([np.asarray(Image.open(path))[:, :, 0].mean() / 255 for path in X])
        return np.column_stack([1 - red, red])


def test_clip_is_an_auxiliary_of_the_joint_label(faces, tiny_clip):
    paths, labels, codes = faces
    X = np.array([str(path) for path in paths] * 3, dtype=object)
    y, group = np.tile(labels, 3), np.where(np.tile(codes, 3) == 1, "m", "f")
    prompts = attribute_prompts({0: "sad", 1: "happy"}, {"f": "woman", "m": "man"})
    clip = CLIPZeroShot(model=tiny_clip, prompts=prompts)
    fair = paper_classifier(
        FrozenEstimator(Brightness().fit(X, y)),
        auxiliary=FrozenEstimator(clip),
        tolerance=0.1,
        cv=None,
    ).fit(X, y, sensitive_features=group)
    assert set(fair.predict(X)) <= {0, 1}
    assert fair.score(X, y) > 0.5


def skorch_network(outputs):
    import skorch
    import torch

    class Softmax(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, outputs)

        def forward(self, x):
            return torch.softmax(self.layer(x), dim=-1)

    return skorch.NeuralNetClassifier(Softmax, max_epochs=1, verbose=0)


def test_a_network_of_two_outputs_says_what_the_joint_label_needs():
    X, y, group = make_rows()
    X = X.astype(np.float32)
    fair = eh.FairClassifier(skorch_network(2), criterion="equalized_odds", tolerance=0.5, cv=2, random_state=0)
    with pytest.raises(eh.InputError, match=r"p\(Y, group\|x\), which has 4 classes, failed .*auxiliary="):
        fair.fit(X, y, sensitive_features=group)
    fair.set_params(auxiliary=skorch_network(4)).fit(X, y, sensitive_features=group)
    assert set(fair.predict(X)) <= {0, 1}


@pytest.mark.parametrize("place", ["estimator", "auxiliary"])
@pytest.mark.parametrize("criterion", ["demographic_parity", "equalized_odds"])
def test_a_frozen_network_of_several_heads_is_asked_for_one_of_them(criterion, place):
    X, y, group = make_rows()
    network = MLP(max_epochs=1, random_state=0).fit(X, np.column_stack([y.astype(object), group]))
    models = {"estimator": network.head(0), "auxiliary": network.head(1), place: network}
    frozen = {name: FrozenEstimator(model) for name, model in models.items()}
    fair = eh.FairClassifier(frozen["estimator"], auxiliary=frozen["auxiliary"], criterion=criterion, cv=None)
    expected = r"2 outputs.*head\(0\)" if (criterion, place) != ("equalized_odds", "estimator") else r"p\(Y, group\|x\)"
    with pytest.raises(eh.InputError, match=expected):
        fair.fit(X, y, sensitive_features=group)
