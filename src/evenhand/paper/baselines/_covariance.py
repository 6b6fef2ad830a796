"""Training under bounds on covariances: the equations are in ``zafar.py``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import softplus

from evenhand.paper.baselines._base import Codes, FloatArray
from evenhand.paper.models._data import Examples
from evenhand.paper.models._net import Net
from evenhand.paper.models.mlp import Perceptron

# The bound is met in float64 with this much to spare, so that it holds in the network's float32.
SPARE = 1e-4
# What a bound of 0 means in float32.
ZERO = 1e-7


def coefficients(labels: Codes, groups: Codes, sides: tuple[int | None, ...]) -> FloatArray:
    """Return v of shape (2, groups, K): covariance k is the mean over rows of v[label, group, k] * g_k(d)."""
    n_groups = int(groups.max()) + 1
    indicators = range(1, 2) if n_groups == 2 else range(n_groups)
    table = np.zeros((2, n_groups, len(sides) * len(indicators)))
    for side_index, side in enumerate(sides):
        rows = np.ones(len(labels), dtype=bool) if side is None else labels == side
        for index, group in enumerate(indicators):
            centred = (np.arange(n_groups) == group) - np.mean(groups[rows] == group)
            column = side_index * len(indicators) + index
            table[slice(None) if side is None else side, :, column] = centred / rows.mean()
    return table


@dataclass(frozen=True)
class Covariance:
    """The covariances that are bounded, as functions of the logit.

    Parameters
    ----------
    sides : tuple
        The labels within which groups are compared; None stands for all rows.
    distance : {"logit", "probability"}
        The definition of the signed distance.
    table : array of shape (2, groups, K)
        See :func:`coefficients`.
    """

    sides: tuple[int | None, ...]
    distance: str
    table: Tensor

    def __call__(self, logit: Tensor, codes: Tensor) -> Tensor:
        """Return the K covariances of rows with these logits and (label, group) codes."""
        g = [self._distance(logit, side) for side in self.sides]
        v = self.table.to(logit.dtype)[codes[:, 0], codes[:, 1]]
        values = torch.stack(g, dim=1).repeat_interleave(v.shape[1] // len(g), dim=1)
        return (v * values).mean(dim=0)

    def _distance(self, logit: Tensor, side: int | None) -> Tensor:
        if self.distance == "probability":
            return torch.sigmoid(logit) - 0.5
        if side is None:
            return logit
        return torch.minimum(torch.zeros_like(logit), logit if side == 1 else -logit)


class ConstrainedNet(Net):
    """Minimises loss + mu . c(theta), where mu follows the method of multipliers for -bound <= c <= bound.

    ::

        m = lambda + rho c,     mu = m - rho clip(m / rho, -bound, bound);     lambda = mu after an epoch.

    c is measured on all training rows every few batches; inside a batch only its gradient is estimated, and
    without bias, because c is a mean over rows.
    """

    def __init__(
        self,
        module: Perceptron,
        *,
        covariance: Covariance,
        bound: float,
        penalty: float,
        interval: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(module, **kwargs)
        self.covariance = covariance
        self.bound = bound
        self.penalty = penalty
        self.interval = interval

    def train(self, train: Examples, valid: Examples | None, saved: dict[str, Any] | None = None) -> Net:
        """Train to the end; see Net."""
        self.multiplier_ = torch.zeros(self.covariance.table.shape[2])
        self.force_ = self.multiplier_.clone()
        self.rows_ = train
        try:
            return super().train(train, valid, saved)
        finally:
            del self.rows_

    def get_loss(self, y_pred: Any, y_true: tuple[Tensor, Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """Return the Lagrangian of a batch."""
        logits = y_pred[0]
        return super().get_loss(y_pred, y_true) + self.force_ @ self.covariance(logits[:, 1] - logits[:, 0], y_true[0])

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        """Update mu every few batches, then count and save as usual."""
        if training and (self.batch_ + 1) % self.interval == 0:
            self._renew_force()
        super().on_batch_end(net, batch=batch, training=training, **kwargs)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Update the multipliers."""
        self._renew_force()
        self.multiplier_ = self.force_.clone()

    def _renew_force(self) -> None:
        inputs: Any = self.rows_.inputs
        with torch.no_grad():
            logits = self.module_(inputs.X)[0]
            measured = self.covariance(logits[:, 1] - logits[:, 0], self.rows_.codes)
        raw = self.multiplier_ + self.penalty * measured
        allowed = self.penalty * self.bound
        self.force_ = raw - raw.clamp(-allowed, allowed)

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"multiplier": self.multiplier_, "force": self.force_}

    def _restore(self, saved: dict[str, Any]) -> None:
        super()._restore(saved)
        self.multiplier_, self.force_ = saved["multiplier"], saved["force"]


def solve_output(
    features: FloatArray, codes: Codes, covariance: Covariance, bound: float, start: FloatArray
) -> FloatArray:
    """Return (w, b) of d = features @ w + b with the least cross-entropy under the bound on every covariance.

    On fixed features this is Zafar's own problem: convex for demographic parity; else there are local optima,
    and two starts. The result meets the bound even if the solver did not converge: (w, b) is shrunk
    until it does, which changes no decision.
    """
    rows = torch.from_numpy(np.column_stack([features, np.ones(len(features))]))
    signs, known = torch.from_numpy(1.0 - 2.0 * codes[:, 0]), torch.from_numpy(codes)

    def loss(theta: Tensor) -> Tensor:
        return softplus(signs * (rows @ theta)).mean()

    def covariances(theta: Tensor) -> Tensor:
        return covariance(rows @ theta, known)

    def jacobian(theta: FloatArray) -> FloatArray:
        point = torch.from_numpy(theta).requires_grad_()
        gradients = [torch.autograd.grad(c, point, retain_graph=True)[0] for c in covariances(point)]
        return torch.stack(gradients).numpy()

    def value_and_gradient(theta: FloatArray) -> tuple[float, FloatArray]:
        point = torch.from_numpy(theta).requires_grad_()
        value = loss(point)
        (gradient,) = torch.autograd.grad(value, point)
        return value.item(), gradient.numpy()

    allowed = max(bound * (1.0 - SPARE), ZERO)
    limits = [
        {
            "type": "ineq",
            "fun": lambda theta, sign=sign: allowed + sign * covariances(torch.from_numpy(theta)).numpy(),
            "jac": lambda theta, sign=sign: sign * jacobian(theta),
        }
        for sign in (-1.0, 1.0)
    ]
    solve: Any = minimize
    found = [
        solve(
            value_and_gradient,
            scale * start,
            jac=True,
            method="SLSQP",
            constraints=[] if math.isinf(bound) else limits,
            options={"maxiter": 300, "ftol": 1e-9},
        ).x
        for scale in (1.0, 0.3)
    ]

    def is_met(theta: FloatArray) -> bool:
        return bool(covariances(torch.from_numpy(theta)).abs().max() <= allowed)

    def shrunk(theta: FloatArray) -> FloatArray:
        low, high = (1.0, 1.0) if is_met(theta) else (0.0, 1.0)
        while high - low > 1e-6:
            middle = (low + high) / 2.0
            low, high = (middle, high) if is_met(middle * theta) else (low, middle)
        return low * theta

    candidates = [shrunk(theta) for theta in (*found, start) if np.isfinite(theta).all()]
    return min(candidates, key=lambda theta: loss(torch.from_numpy(theta)).item())
