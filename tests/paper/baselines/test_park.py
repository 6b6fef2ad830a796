from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from torch.nn.functional import normalize

from evenhand.errors import InputError
from evenhand.paper.baselines import FairContrastive
from evenhand.paper.baselines._contrastive import TwoViews, fair_contrastive_loss
from evenhand.paper.models import MLP, ResNet18
from evenhand.paper.models._data import Examples, Table
from evenhand.paper.models._net import Net


def loss_by_hand(z, labels, groups, temperature, group_normalised):
    """The sums of the paper, one anchor at a time."""
    losses, cells = [], []
    for i in range(len(z)):
        positives = [p for p in range(len(z)) if p != i and labels[p] == labels[i]]
        negatives = [s for s in range(len(z)) if labels[s] != labels[i] and groups[s] == groups[i]]
        if not positives or not negatives:
            continue
        below = np.log(sum(np.exp(z[i] @ z[s] / temperature) for s in negatives))
        terms = {p: below - z[i] @ z[p] / temperature for p in positives}
        if group_normalised:
            shares = [np.mean([terms[p] for p in positives if groups[p] == g]) for g in {groups[p] for p in positives}]
            losses.append(np.mean(shares))
        else:
            losses.append(np.mean(list(terms.values())))
        cells.append((labels[i], groups[i]))
    if not group_normalised:
        return np.mean(losses)
    return np.mean([np.mean([x for x, c in zip(losses, cells, strict=True) if c == cell]) for cell in set(cells)])


@pytest.mark.parametrize("group_normalised", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_loss_is_the_papers_sum(seed, group_normalised):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 20))
    z = normalize(torch.from_numpy(rng.normal(size=(n, 5))), dim=1)
    labels, groups = rng.integers(2, size=n), rng.integers(1 + seed % 3, size=n)
    found = fair_contrastive_loss(
        z,
        torch.from_numpy(labels),
        torch.from_numpy(groups),
        temperature=0.3,
        group_normalised=group_normalised,
    )
    expected = loss_by_hand(z.numpy(), labels, groups, 0.3, group_normalised)
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_telling_groups_apart_is_not_rewarded():
    """Rows of another label count against an anchor only if they are of its own group."""
    z = normalize(torch.randn(8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=1)
    labels, groups = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])
    similarity = (z @ z.T).requires_grad_()
    # Rows whose products are the similarities, so that these are the variables.
    root = torch.linalg.cholesky(similarity + 1e-6 * torch.eye(8, dtype=torch.float64))
    (slope,) = torch.autograd.grad(fair_contrastive_loss(root, labels, groups), similarity)
    slope = slope + slope.T
    other_label, other_group = labels[:, None] != labels, groups[:, None] != groups
    assert slope[other_label & other_group].abs().max() < 1e-9 * slope.abs().max()
    assert (slope[other_label & ~other_group] > 0).all()
    assert (slope[~other_label & other_group] < 0).all()


def test_a_batch_without_anchors_has_no_loss_and_no_gradient():
    z = normalize(torch.ones(3, 2), dim=1).requires_grad_()
    loss = fair_contrastive_loss(z, torch.tensor([0, 0, 0]), torch.tensor([0, 1, 0]))
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(z.grad, torch.zeros(3, 2))


def make_rows(n=400, seed=0):
    """Three columns: the label's, a louder one of the group's, and noise."""
    rng = np.random.default_rng(seed)
    y, group = rng.integers(2, size=n), (rng.random(n) < 0.3).astype(int)
    X = np.column_stack([2.0 * y, 4.0 * group, np.zeros(n)]) + 0.5 * rng.normal(size=(n, 3))
    return X, y, group


def distance_ratio(features, y, group):
    """Same label and different group, against different label and same group."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    distance = np.linalg.norm(unit[:, None] - unit[None], axis=2)
    label, other = y[:, None] == y, group[:, None] != group
    return distance[label & other].mean() / distance[~label & ~other].mean()


@pytest.mark.parametrize("group_normalised", [True, False])
def test_the_loss_pulls_pairs_of_one_label_and_two_groups_together(group_normalised):
    X, y, group = make_rows()
    options = {"group_normalised": group_normalised, "projection": 16, "random_state": 0}
    network = MLP(hidden=32)
    untrained = FairContrastive(network, epochs=1, lr=1e-9, **options).fit(X, y, sensitive_features=group)
    trained = FairContrastive(network, epochs=30, lr=0.05, **options).fit(X, y, sensitive_features=group)
    X_new, y_new, new = make_rows(seed=1)

    def projections(fair):
        rows = Examples(Table(X_new.astype(np.float32)))
        return fair.projector_.forward(rows).numpy()[:, 0]

    compared = (
        distance_ratio(projections(untrained), y_new, new),
        distance_ratio(projections(trained), y_new, new),
    )
    assert compared[0] > 1.0
    assert compared[1] < 0.4 * compared[0]
    features = [distance_ratio(fair.transform(X_new), y_new, new) for fair in (untrained, trained)]
    assert features[1] < 0.7 * features[0]
    losses = [row["train_loss"] for row in trained.projector_.history]
    assert losses[-1] < losses[0]
    assert trained.score(X_new, y_new) > 0.9


def test_the_output_layer_learns_and_the_encoder_does_not():
    X, y, group = make_rows(200)
    few, many = (
        FairContrastive(MLP(hidden=8), epochs=3, output_epochs=epochs, output_lr=0.05, random_state=0).fit(
            X, y, sensitive_features=group
        )
        for epochs in (1, 8)
    )
    np.testing.assert_array_equal(few.transform(X), many.transform(X))
    assert not np.array_equal(few.predict_proba(X), many.predict_proba(X))


def test_two_views_are_random_parts_of_the_image():
    pixels = np.random.default_rng(0).integers(0, 256, size=(48, 40, 3), dtype=np.uint8)
    views = TwoViews(32)
    first = views(Image.fromarray(pixels), np.random.default_rng(1))
    assert first.shape == (2, 32, 32, 3)
    assert first.dtype == np.uint8
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(first, views(Image.fromarray(pixels), np.random.default_rng(1)))
    grey = sum(
        bool(np.ptp(view, axis=2).max() == 0)
        for seed in range(60)
        for view in views(Image.fromarray(pixels), np.random.default_rng(seed))
    )
    assert 8 < grey < 45


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    directory = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    paths = []
    for i in range(8):
        pixels = rng.integers(0, 60, size=(40, 40, 3), dtype=np.uint8)
        pixels[:, :, 0 if i % 2 else 2] += 150
        paths.append(directory / f"{i}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths, np.arange(8) % 2, np.arange(8) // 4


def test_a_resnet_is_trained_in_two_stages_and_a_stopped_one_ends_in_the_same_bits(images, tmp_path, monkeypatch):
    paths, y, group = images
    network = ResNet18(weights=None, image_size=32, crop=1.0, save_every=0.0)
    fair = FairContrastive(network, epochs=1, output_epochs=1, batch_size=4, projection=8, random_state=0)
    whole = fair.fit(paths, y, sensitive_features=group)
    expected = whole.predict_proba(paths)
    original, calls = Net.train_step, [0]

    def stop(self, *args, **kwargs):
        calls[0] += 1
        if calls[0] in (2, 5):
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    saving = clone(fair).set_params(checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Net, "train_step", stop)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                saving.fit(paths, y, sensitive_features=group)
    resumed = saving.fit(paths, y, sensitive_features=group)
    np.testing.assert_array_equal(expected, resumed.predict_proba(paths))
    assert len(list(tmp_path.glob("*.pt"))) == 2
    assert resumed.transform(paths).shape == (8, 512)


def test_impossible_options_are_named():
    X, y, group = make_rows(40)
    with pytest.raises(InputError, match="temperature must be positive"):
        FairContrastive(MLP(), temperature=0.0).fit(X, y, sensitive_features=group)
    with pytest.raises(InputError, match="X has 39 rows, y has 40"):
        FairContrastive(MLP()).fit(X[:-1], y, sensitive_features=group)
