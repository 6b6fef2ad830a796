import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from evenhand.errors import InputError
from evenhand.paper.datasets import make_zafar, zafar

# (Y, A), mean and size as printed in the paper, kept apart from the module's own tables.
PAPER = {(1, 0): ([2, 0], 500), (1, 1): ([2, 3], 100), (0, 0): ([-1, -3], 100), (0, 1): ([-1, 0], 500)}
COVARIANCE = [[5, 1], [1, 5]]


def cell_counts(data):
    group = data.group.astype(int)
    return {(y, a): int(((data.y == y) & (group == a)).sum()) for y, a in PAPER}


def test_default_is_the_papers_sample():
    data = make_zafar(random_state=0)
    assert data.X.shape == (1200, 2)
    assert cell_counts(data) == {(1, 0): 500, (1, 1): 100, (0, 0): 100, (0, 1): 500}
    assert data.p_joint.shape == (1200, 2, 2)


@pytest.mark.parametrize("n", [1, 5, 12, 1000, 1201, 99_999])
def test_exact_cells_are_within_one_of_their_share(n):
    counts = cell_counts(make_zafar(n, random_state=0))
    assert sum(counts.values()) == n
    for cell, (_, size) in PAPER.items():
        assert abs(counts[cell] - n * size / 1200) <= 1


def test_order_of_the_cells_is_random():
    first, second = (make_zafar(random_state=0).take(part) for part in (np.arange(600), np.arange(600, 1200)))
    assert abs(first.y.mean() - second.y.mean()) < 0.1


def test_iid_cells_vary_and_have_the_right_shares():
    counts = [cell_counts(make_zafar(1200, random_state=seed, iid=True)) for seed in range(40)]
    assert len({tuple(count.values()) for count in counts}) > 30
    for cell, (_, size) in PAPER.items():
        mean = np.mean([count[cell] for count in counts])
        share = size / 1200
        assert abs(mean - size) < 4 * np.sqrt(1200 * share * (1 - share) / 40)


def test_points_have_the_papers_means_and_covariance():
    data = make_zafar(240_000, random_state=1)
    group = data.group.astype(int)
    for (y, a), (mean, _) in PAPER.items():
        points = data.X[(data.y == y) & (group == a)]
        np.testing.assert_allclose(points.mean(axis=0), mean, atol=5 * np.sqrt(5 / len(points)))
        np.testing.assert_allclose(np.cov(points.T), COVARIANCE, atol=5 * 5 * np.sqrt(2 / len(points)))


def test_truth_is_bayes_rule():
    X = np.random.default_rng(0).uniform(-9, 9, size=(500, 2))
    weighted = np.empty((500, 2, 2))
    for (y, a), (mean, size) in PAPER.items():
        density = multivariate_normal(mean, COVARIANCE).pdf(X)
        weighted[:, y, a] = size * density
        np.testing.assert_allclose(zafar.cell_density(X)[:, y, a], density, rtol=1e-12)
    np.testing.assert_allclose(zafar.true_joint(X), weighted / weighted.sum(axis=(1, 2), keepdims=True), rtol=1e-10)


def test_densities_integrate_to_one():
    step = 0.25
    axis = np.arange(-18, 18, step)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(zafar.cell_density(grid).sum(axis=0) * step**2, 1.0, rtol=1e-9)


def test_truth_averages_to_the_priors():
    data = make_zafar(600_000, random_state=2)
    expected = np.array([[1, 5], [5, 1]]) / 12
    np.testing.assert_allclose(data.p_joint.mean(axis=0), expected, atol=0.002)


def test_truth_is_calibrated():
    data = make_zafar(400_000, random_state=3, iid=True)
    group = data.group.astype(int)
    for y, a in PAPER:
        hit = (data.y == y) & (group == a)
        p = data.p_joint[:, y, a]
        bins = np.minimum((p * 20).astype(int), 19)
        for number in np.unique(bins):
            inside = bins == number
            if inside.sum() < 200:
                continue
            spread = np.sqrt(np.sum(p[inside] * (1 - p[inside]))) / inside.sum()
            assert abs(hit[inside].mean() - p[inside].mean()) < 4.5 * spread


def test_marginals_of_the_truth():
    data = make_zafar(50, random_state=0)
    np.testing.assert_allclose(data.p_y, data.p_joint[:, 1].sum(axis=1))
    np.testing.assert_allclose(data.p_group, data.p_joint.sum(axis=1))
    np.testing.assert_allclose(data.p_group.sum(axis=1), 1.0)


def test_truth_of_own_points_and_of_taken_rows():
    data = make_zafar(100, random_state=0)
    assert np.array_equal(data.p_joint, data.true_joint(data.X))
    part = data.take([5, 3])
    assert np.array_equal(part.p_joint, data.true_joint(data.X[[5, 3]]))


def test_truth_stays_finite_far_away():
    joint = zafar.true_joint([[1e6, 1e6], [-1e6, 1e6], [0.0, -1e6]])
    assert np.isfinite(joint).all()
    np.testing.assert_allclose(joint.sum(axis=(1, 2)), 1.0)


@pytest.mark.parametrize("iid", [False, True])
def test_seed_fixes_every_bit(iid):
    first, second = (make_zafar(5000, random_state=11, iid=iid) for _ in range(2))
    other = make_zafar(5000, random_state=12, iid=iid)
    for name in ("X", "y", "group", "p_joint"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert first.X.tobytes() != other.X.tobytes()


def test_seed_fixes_every_bit_in_another_process():
    code = (
        "from evenhand.datasets import make_zafar; d = make_zafar(1000, random_state=5);"
        "print((d.X.tobytes() + d.p_joint.tobytes()).hex())"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    data = make_zafar(1000, random_state=5)
    assert printed.strip() == (data.X.tobytes() + data.p_joint.tobytes()).hex()


def test_seed_zero_is_what_it_was():
    data = make_zafar(random_state=0)
    expected = [[-1.6796224072737849, -0.04624634564544482], [3.1969887604677294, 7.06875378519139]]
    np.testing.assert_allclose(data.X[:2], expected, rtol=1e-12)
    assert data.y[:2].tolist() == [0, 1]
    assert data.group[:2].tolist() == ["1", "1"]


def test_generator_is_continued():
    rng = np.random.default_rng(0)
    assert not np.array_equal(make_zafar(10, rng).X, make_zafar(10, rng).X)


def test_a_million_points_can_be_drawn():
    assert len(make_zafar(1_000_000, random_state=0)) == 1_000_000


@pytest.mark.parametrize("n", [0, -5, 10.0, "many"])
def test_impossible_sizes_are_refused(n):
    with pytest.raises(InputError, match="n must be"):
        make_zafar(n)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1.0]], "two columns"),
        ([1.0, 2.0], "two columns"),
        ([[0, 0], [np.nan, 1]], "row 1"),
        ([["a", "b"]], "numbers"),
    ],
)
def test_impossible_points_are_refused(X, message):
    with pytest.raises(InputError, match=message):
        zafar.true_joint(X)


def test_splits_ask_for_sizes():
    data = make_zafar(100, random_state=0)
    with pytest.raises(InputError, match="sizes="):
        data.splits(0)
    assert [len(part) for part in data.splits(0, sizes=(50, 30, 20))] == [50, 30, 20]
