from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from evenhand.errors import InputError
from evenhand.paper.models import MLP
from evenhand.paper.models._data import shuffled_chunks
from evenhand.paper.models._net import seeded
from evenhand.paper.models.mlp import Perceptron

QUICK = {"max_epochs": 4, "batch_size": 32, "lr": 0.02, "random_state": 0}

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight two is not two rows: batches are drawn by row, as in scikit-learn's own SGD"
    ),
}


@parametrize_with_checks(
    [MLP(max_epochs=30, lr=0.05, batch_size=32, random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_mlp_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


def make_rows(n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    group = np.where(X[:, 1] + 0.5 * rng.normal(size=n) > 0, "b", "a")
    y = (X[:, 0] + 0.5 * X[:, 1] + 0.3 * rng.normal(size=n) > 0).astype(int)
    return X, y, group


def parameters(model):
    return {name: value.numpy().copy() for name, value in model.net_.module_.state_dict().items()}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], strict=True)


def test_the_same_seed_gives_the_same_bits_whatever_torch_drew_before():
    X, y, _ = make_rows()
    first = parameters(MLP(**QUICK).fit(X, y))
    torch.manual_seed(99)
    torch.rand(7)
    before = torch.get_rng_state()
    second = parameters(MLP(**QUICK).fit(X, y))
    assert_same_bits(first, second)
    assert torch.equal(before, torch.get_rng_state())
    third = parameters(MLP(**QUICK | {"random_state": 1}).fit(X, y))
    assert not np.array_equal(first["hidden.weight"], third["hidden.weight"])


def test_the_number_of_threads_does_not_change_a_bit():
    X, y, _ = make_rows(2000)
    wide = np.random.default_rng(0).normal(size=(2000, 300)) + X[:, :1]
    found = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(parameters(MLP(**QUICK | {"batch_size": 1000}).fit(wide, y)))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert_same_bits(*found)


def test_training_is_adam_on_cross_entropy_with_decaying_rate():
    X, y, _ = make_rows(90)
    model = MLP(
        hidden=5,
        max_epochs=3,
        batch_size=32,
        lr=0.05,
        lr_decay=0.5,
        weight_decay=0.01,
        validation=None,
        random_state=3,
    )
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    with seeded(seed, 2**31 + 1):
        network = Perceptron(4, 5, [2], 0.2)
    optimizer = torch.optim.Adam(network.parameters(), weight_decay=0.01)
    inputs, codes = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    for epoch in range(3):
        optimizer.param_groups[0]["lr"] = 0.05 * 0.5**epoch
        for rows in shuffled_chunks(np.arange(90), 32, seed, epoch):
            optimizer.zero_grad()
            hidden = inputs[rows] @ network.hidden.weight.T + network.hidden.bias
            hidden = torch.where(hidden > 0, hidden, 0.2 * hidden)
            logits = hidden @ network.heads[0].weight.T + network.heads[0].bias
            torch.nn.CrossEntropyLoss()(logits, codes[rows]).backward()
            optimizer.step()
    expected = {name: value.numpy() for name, value in network.state_dict().items()}
    found = parameters(model.fit(X, y))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6)


def test_an_epoch_has_every_row_once_and_no_batch_of_one():
    for n in (1, 5, 64, 65, 66):
        chunks = shuffled_chunks(np.arange(n), 16, seed=0, epoch=0)
        assert sorted(np.concatenate(chunks)) == list(range(n))
        assert all(2 <= len(chunk) <= 17 for chunk in chunks) or n == 1
    assert not np.array_equal(*(np.concatenate(shuffled_chunks(np.arange(64), 16, 0, epoch)) for epoch in (0, 1)))


def test_mlp_learns_what_a_linear_model_cannot():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(600, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    assert LogisticRegression().fit(X, y).score(X, y) < 0.7
    assert MLP(hidden=16, lr=0.03, batch_size=64, max_epochs=60, random_state=0).fit(X, y).score(X, y) > 0.93


def test_joint_labels_are_four_classes_and_marginalise_to_each_part():
    X, y, group = make_rows(600)
    joint = np.fromiter(zip(y.tolist(), group.tolist(), strict=True), dtype=object, count=len(y))
    model = MLP(max_epochs=30, lr=0.02, batch_size=64, random_state=0).fit(X, joint)
    assert model.classes_.tolist() == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert p.dtype == np.float64
    table = p.reshape(-1, 2, 2)
    assert np.mean((table.sum(axis=2)[:, 1] > 0.5) == (y == 1)) > 0.85
    assert np.mean((table.sum(axis=1)[:, 1] > 0.5) == (group == "b")) > 0.75
    assert model.predict(X[:3]).tolist() == [model.classes_[k] for k in p[:3].argmax(axis=1)]


def test_several_columns_make_heads_that_are_classifiers_of_their_own():
    X, y, group = make_rows(600)
    both = np.column_stack([y.astype(object), group.astype(object)])
    model = MLP(max_epochs=30, lr=0.02, batch_size=64, random_state=0).fit(X, both)
    assert [classes.tolist() for classes in model.classes_] == [[0, 1], ["a", "b"]]
    p_y, p_group = model.predict_proba(X)
    label, sensitive = model.head(0), FrozenEstimator(model.head(1))
    np.testing.assert_array_equal(label.predict_proba(X), p_y)
    np.testing.assert_array_equal(sensitive.predict_proba(X), p_group)
    assert label.score(X, y) > 0.85
    assert sensitive.fit(X, group).score(X, group) > 0.75
    assert model.predict(X)[:, 1].tolist() == sensitive.predict(X).tolist()
    with pytest.raises(InputError, match="no head 2"):
        model.head(2)
    with pytest.raises(InputError, match="FrozenEstimator"):
        label.fit(X, y)


def test_weights_move_the_probabilities_and_weight_zero_is_absence():
    X, y, _ = make_rows(400)
    plain = MLP(**QUICK).fit(X, y)
    heavy = MLP(**QUICK).fit(X, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    assert heavy.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.05
    junk = np.concatenate([X, 100 * X[:50]])
    weights = np.concatenate([np.ones(400), np.zeros(50)])
    ignoring = MLP(**QUICK).fit(junk, np.concatenate([y, 1 - y[:50]]), sample_weight=weights)
    assert_same_bits(parameters(plain), parameters(ignoring))


def test_the_best_epoch_on_the_validation_rows_is_kept():
    X, y, _ = make_rows(60)
    X_valid, y_valid, _ = make_rows(200, seed=1)
    model = MLP(hidden=32, max_epochs=200, batch_size=16, lr=0.05, patience=6, random_state=0)
    model.fit(X, y, validation_data=(X_valid, y_valid))
    losses = [row["valid_loss"] for row in model.net_.history]
    assert len(losses) < 200
    assert len(losses) == np.argmin(losses) + 1 + 6
    assert log_loss(y_valid, model.predict_proba(X_valid)[:, 1]) == pytest.approx(min(losses), rel=1e-5)
    assert losses[-1] > min(losses)
    by_accuracy = clone(model).set_params(monitor="accuracy").fit(X, y, validation_data=(X_valid, y_valid))
    accuracies = [row["valid_accuracy"] for row in by_accuracy.net_.history]
    assert by_accuracy.score(X_valid, y_valid) == pytest.approx(max(accuracies), abs=1e-6)


def test_every_class_gives_its_share_to_the_held_out_rows(monkeypatch):
    from evenhand.paper.models import _estimator

    seen = []
    original = _estimator.Net.train

    def spy(self, train, valid, saved=None):
        seen.append((train, valid))
        return original(self, train, valid, saved)

    monkeypatch.setattr(_estimator.Net, "train", spy)
    X, _, _ = make_rows(100)
    y = np.array([0] * 70 + [1] * 29 + [2])
    MLP(**QUICK | {"validation": 0.2}).fit(X, y)
    train, valid = seen[0]
    assert np.bincount(y[valid.rows], minlength=3).tolist() == [14, 5, 0]
    assert sorted([*train.rows, *valid.rows]) == list(range(100))


def test_it_works_in_pipelines_cross_validation_and_pickles():
    X, y, group = make_rows(300)
    pipeline = make_pipeline(StandardScaler(), MLP(max_epochs=20, lr=0.02, batch_size=32, random_state=0))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.8
    p = cross_val_predict(pipeline, X, group, cv=3, method="predict_proba")
    assert p.shape == (300, 2)
    fitted = clone(pipeline).fit(X, y)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))


def test_a_progress_bar_counts_the_batches(capsys):
    X, y, _ = make_rows(64)
    MLP(max_epochs=2, batch_size=16, validation=None, random_state=0, verbose=1).fit(X, y)
    assert "8/8" in capsys.readouterr().err
    MLP(max_epochs=2, batch_size=16, validation=None, random_state=0).fit(X, y)
    captured = capsys.readouterr()
    assert captured.err == captured.out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden must be"),
        ({"max_epochs": 0}, "max_epochs must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"lr": 0.0}, "lr must be"),
        ({"lr": float("nan")}, "lr must be"),
        ({"monitor": "auc"}, "monitor must be"),
        ({"validation": 1.0}, "validation must be"),
    ],
)
def test_impossible_options_are_named(options, message):
    X, y, _ = make_rows(40)
    with pytest.raises(InputError, match=message):
        MLP(**options).fit(X, y)


def test_bad_data_is_named():
    X, y, _ = make_rows(40)
    with pytest.raises(InputError, match="only one class"):
        MLP().fit(X, np.zeros(40))
    with pytest.raises(InputError, match="missing label in row 2"):
        MLP().fit(X, np.array([1, 0, None] + [1] * 37, dtype=object))
    with pytest.raises(InputError, match="the class 7, which y does not have"):
        MLP().fit(X, y, validation_data=(X, np.full(40, 7)))
    with pytest.raises(InputError, match="diverged in epoch 1"):
        MLP(lr=1e30, max_epochs=3, batch_size=8, random_state=0).fit(1e10 * X, y)
    with pytest.raises(NotFittedError):
        MLP().predict(X)
    with pytest.raises(NotFittedError):
        MLP().head(0)
