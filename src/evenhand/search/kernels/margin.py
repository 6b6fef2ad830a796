"""The margin of a linear rule, row by row."""

from __future__ import annotations

import numpy as np

from evenhand.search.kernels.decorators import kernel


@kernel
def linear_margin(intercept, slope, p_y, columns, coefficients, check, may_be_none, out):
    """Fill out_i = intercept + slope p_i - sum_j c_j columns_ij; return the first row that is no probability, or -1.

    ``check`` says whether ``p_y`` is to be checked too: it is not when it holds a partial sum. ``may_be_none`` says
    whether all columns of a row may be 0: those of a row that is in none of the strata are.
    """
    bad = -1
    n_columns = columns.shape[1]
    for i in range(p_y.shape[0]):
        p = p_y[i]
        total = 0.0
        inner = 0.0
        fine = (not check) or (p >= 0.0 and p <= 1.0)
        for j in range(n_columns):
            q = columns[i, j]
            fine = fine and q >= 0.0 and q <= 1.0
            total += q
            inner += coefficients[j] * q
        fine = fine and (np.abs(total - 1.0) <= 1e-3 or (may_be_none and total == 0.0))
        if not fine and bad < 0:
            bad = i
        out[i] = intercept + slope * p - inner
    return bad
