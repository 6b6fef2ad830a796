"""The margin of a linear rule, row by row."""

from __future__ import annotations

import numpy as np

from evenhand.search.kernels.decorators import kernel


@kernel
def linear_margin(intercept, slope, p_y, columns, coefficients, check, may_be_none, out):
    """Fill out_i = intercept + slope p_i - sum_j c_j columns_ij; return the first row with an invalid score, or -1.

    ``check`` tells whether ``p_y`` is checked, too: it is not if it contains a partial sum. ``may_be_none`` tells
    whether all columns of a row may be 0, as for a row that is in none of the strata.
    """
    n_columns = columns.shape[1]
    if n_columns == 4 and not may_be_none:
        # Two groups and two labels: without an inner loop and without branches, several rows are decided at once.
        c0, c1, c2, c3 = coefficients[0], coefficients[1], coefficients[2], coefficients[3]
        wrong = 0
        for i in range(p_y.shape[0]):
            p, q0, q1, q2, q3 = p_y[i], columns[i, 0], columns[i, 1], columns[i, 2], columns[i, 3]
            fine = (q0 >= 0.0) & (q0 <= 1.0) & (q1 >= 0.0) & (q1 <= 1.0)
            fine &= (q2 >= 0.0) & (q2 <= 1.0) & (q3 >= 0.0) & (q3 <= 1.0)
            fine &= np.abs(q0 + q1 + q2 + q3 - 1.0) <= 1e-3
            fine &= (not check) | ((p >= 0.0) & (p <= 1.0))
            wrong |= not fine
            out[i] = intercept + slope * p - (c0 * q0 + c1 * q1 + c2 * q2 + c3 * q3)
        if wrong == 0:
            return -1
    bad = -1
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


@kernel
def four_column_decisions(intercept, slope, p_y, columns, coefficients, out):
    """Fill out_i with 1 where the margin of ``linear_margin`` is above 0, else 0; return whether all scores are valid.

    Two groups and two labels. Margins are not kept: writing them would take as long as reading the scores.
    """
    # The compiler has to know the number of columns to decide several rows at once.
    if columns.shape[1] != 4:
        return False
    c0, c1, c2, c3 = coefficients[0], coefficients[1], coefficients[2], coefficients[3]
    wrong = 0
    for i in range(p_y.shape[0]):
        p, q0, q1, q2, q3 = p_y[i], columns[i, 0], columns[i, 1], columns[i, 2], columns[i, 3]
        fine = (q0 >= 0.0) & (q0 <= 1.0) & (q1 >= 0.0) & (q1 <= 1.0) & (p >= 0.0) & (p <= 1.0)
        fine &= (q2 >= 0.0) & (q2 <= 1.0) & (q3 >= 0.0) & (q3 <= 1.0) & (np.abs(q0 + q1 + q2 + q3 - 1.0) <= 1e-3)
        wrong |= not fine
        out[i] = intercept + slope * p - (c0 * q0 + c1 * q1 + c2 * q2 + c3 * q3) > 0.0
    return wrong == 0
