"""Z17: Zafar, Valera, Gomez Rodriguez, Gummadi (2017), Fairness Constraints; and their JMLR 2019 sequel.

The network is trained under a bound on the covariance of the group and the signed distance d to the
decision boundary (here the logit; z is a group's indicator, with its mean over the rows that are summed):

    min_theta  loss(theta)   subject to   | 1/N sum_i (z_i - mean z) d(x_i) | <= bound           (DP)
    ... subject to | 1/N_y sum_{i : y_i = y} (z_i - mean_y z) min(0, y_i d(x_i)) | <= bound      (EO: y = +-1)

The second is the covariance with the distance of misclassified rows, which stands for the false negative
(y = 1) and the false positive rate (y = -1).

Deviations: they solve a convex (DP) or convex-concave (EO) problem of a linear classifier. Here d is a
network, so the whole is trained by the method of multipliers on mini-batches, and at the end the output
layer, which on the learnt features is their linear classifier, is solved exactly under the bound. In EO
they centre z over all rows; z is centred within the label here, or a difference of base rates between
groups would count as unfairness. Several groups have one indicator each. A network can have no covariance
with the logit at all and still select the groups at different rates. ``distance="probability"`` takes
sigmoid(d) - 1/2, over all rows (DP) or all rows of a label (EO), instead of d and of min(0, y d): a
smooth approximation of the rates themselves. It is not part of their papers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from evenhand.arguments import Seed
from evenhand.errors import InputError
from evenhand.inputs import SensitiveFeatures
from evenhand.paper.baselines._base import Baseline, Codes, FloatArray, parity_labels
from evenhand.paper.baselines._covariance import ConstrainedNet, Covariance, coefficients, solve_output
from evenhand.paper.models._checkpoint import open_checkpoint
from evenhand.paper.models._data import Examples, Table
from evenhand.paper.models._net import seeded, threads
from evenhand.paper.models.mlp import MLP, Perceptron
from evenhand.rules.criteria import Criterion


class CovarianceBound(Baseline):
    """A network trained under a bound on the covariance of group and decision (Zafar et al. 2017).

    Each bound needs one training, so a trade-off needs one for each of its points. The useful range of bounds is from 0
    to the covariance of the unconstrained network, which ``bound=inf`` stores in ``covariance_``.

    Parameters
    ----------
    network : MLP, default=None
        The network and how to train it: units, epochs, batches, rates. All epochs are run, on all rows, on
        the CPU: its ``validation``, ``patience`` and ``device`` are not used. ``None`` means ``MLP()``.
    criterion : str or Criterion, default="demographic_parity"
        Any parity criterion. Demographic parity bounds the covariance with the logit, the others that with
        the logit of misclassified rows within a label.
    bound : float, default=0.05
        The bound. It holds on the training rows.
    distance : {"logit", "probability"}, default="logit"
        The signed distance to the boundary: the logit, as in their papers, or the probability minus one half,
        which follows the rates of decisions more closely.
    penalty : float, default=10.0
        The penalty parameter rho of the method of multipliers.
    checkpoint : path, default=None
        A directory; see :class:`evenhand.paper.models.MLP`.
    random_state : int, RandomState or None, default=None
        Determines the initial parameters and the order of the rows.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : array
        The negative and the positive label.
    groups_ : tuple
        The groups.
    covariance_ : array
        The bounded covariances on the training rows: by label, then by group.
    net_ : skorch.NeuralNetClassifier
        The trained network.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.paper.baselines import CovarianceBound
    >>> from evenhand.paper.models import MLP
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=300)
    >>> X = rng.normal(size=(300, 2)) + group[:, None]
    >>> y = (X[:, 0] + rng.normal(size=300) > 0.5).astype(int)
    >>> network = MLP(max_epochs=5, batch_size=32, lr=0.01)
    >>> fair = CovarianceBound(network, bound=0.02, random_state=0).fit(X, y, sensitive_features=group)
    >>> d = fair.decision_function(X)
    >>> bool(abs(np.mean((group - group.mean()) * d)) <= 0.02)
    True
    """

    paper: ClassVar[str] = "Z17"

    def __init__(
        self,
        network: MLP | None = None,
        *,
        criterion: str | Criterion = "demographic_parity",
        bound: float = 0.05,
        distance: str = "logit",
        penalty: float = 10.0,
        checkpoint: str | Path | None = None,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.network = network
        self.criterion = criterion
        self.bound = bound
        self.distance = distance
        self.penalty = penalty
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, sensitive_features: SensitiveFeatures | None) -> CovarianceBound:
        """Train the network under the bound.

        Parameters
        ----------
        X : array-like of numbers
            The rows.
        y : array-like
            Labels of two values; the larger is positive.
        sensitive_features : array-like, Series or one-column frame
            Each row's group.
        """
        sides = parity_labels(self.criterion)
        if self.distance not in ("logit", "probability"):
            raise InputError(f"distance must be 'logit' or 'probability'; got {self.distance!r}.")
        linear = sides == (None,) and self.distance == "logit"
        if not (self.bound > 0.0 or (self.bound == 0.0 and linear)):
            raise InputError(
                f"bound must be positive, or 0 for demographic parity with the logit; got {self.bound!r}: "
                "use a small number for a strict bound."
            )
        labels, groups = self._read(y, sensitive_features)
        for side in sides:
            for code, name in enumerate(self.groups_):
                if side is not None and not ((labels == side) & (groups == code)).any():
                    label = self.classes_.tolist()[side]
                    raise InputError(
                        f"no row of group {name!r} has the label {label!r}: both labels are needed in each group."
                    )
        self.network_ = clone(self.network) if self.network is not None else MLP()
        self.network_._check_options()
        table = Table(validate_data(self, X, dtype=np.float32))
        if len(table) != len(labels):
            raise InputError(f"X has {len(table)} rows, y has {len(labels)}.")
        with threads(1):
            self._fit(table, np.column_stack([labels, groups]), sides)
        return self

    def _fit(self, table: Table, codes: Codes, sides: tuple[int | None, ...]) -> None:
        coefficient = coefficients(codes[:, 0], codes[:, 1], sides)
        covariance = Covariance(sides, self.distance, torch.from_numpy(coefficient))
        network = self.network_.set_params(random_state=self.random_state)
        settings = self.get_params(deep=False) | {"network": network}
        checkpoint = open_checkpoint(self.checkpoint, type(self).__name__, settings, [table.X.numpy(), codes])
        saved = None if checkpoint is None else checkpoint.load()
        seed = network._draw_seed() if saved is None else saved["seed"]
        with seeded(seed, 2**31 + 1):
            module = Perceptron(self.n_features_in_, network.hidden, [2], network.negative_slope)
        self.net_ = ConstrainedNet(
            module,
            covariance=covariance,
            bound=float(self.bound),
            penalty=self.penalty,
            seed=seed,
            max_epochs=network.max_epochs,
            batch_size=network.batch_size,
            lr=network.lr,
            lr_decay=network.lr_decay,
            optimizer=torch.optim.Adam,
            optimizer__weight_decay=network.weight_decay,
            optimizer__fused=True,
            checkpoint=checkpoint,
            save_every=network.save_every,
            progress=self.verbose > 0,
        ).train(Examples(table, codes), None, saved)
        trained: Any = self.net_.module_
        self._solve_output(trained, table, codes, covariance)
        with torch.no_grad():
            logits = trained(table.X)[0].double()
        values = covariance(logits[:, 1] - logits[:, 0], torch.from_numpy(codes))
        self.covariance_ = values.numpy()

    def _solve_output(self, module: Perceptron, table: Table, codes: Codes, covariance: Covariance) -> None:
        head: Any = module.heads[0]
        with torch.no_grad():
            features = module.features(table.X).double().numpy()
            w = (head.weight[1] - head.weight[0]).double().numpy()
            b = (head.bias[1] - head.bias[0]).double().numpy()
        start = np.append(w, b)
        if self.bound == 0.0:
            # Linear constraints: start from the nearest point without covariance.
            v = covariance.table.numpy()[codes[:, 0], codes[:, 1]]
            rows = v.T @ np.column_stack([features, np.ones(len(features))]) / len(features)
            start = start - np.linalg.pinv(rows) @ (rows @ start)
        solved = torch.from_numpy(solve_output(features, codes, covariance, float(self.bound), start)).float()
        with torch.no_grad():
            # Two logits -d/2 and d/2 have the softmax of one logit d.
            head.weight[:] = torch.stack([-solved[:-1], solved[:-1]]) / 2.0
            head.bias[:] = torch.stack([-solved[-1], solved[-1]]) / 2.0

    def decision_function(self, X: Any) -> FloatArray:
        """Return the signed distance d to the decision boundary: the logit."""
        check_is_fitted(self)
        inputs = Table(validate_data(self, X, reset=False, dtype=np.float32))
        with threads(1):
            (logits,) = self.net_.forward(Examples(inputs))
        values: FloatArray = (logits[:, 1] - logits[:, 0]).numpy().astype(np.float64)
        return values

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the network's probabilities of the two classes."""
        p = 1.0 / (1.0 + np.exp(-self.decision_function(X)))
        return np.column_stack([1.0 - p, p])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the decisions: whether the distance is positive."""
        positive = self.decision_function(X) > 0.0
        decided: NDArray[Any] = self.classes_[positive.astype(np.intp)]
        return decided
