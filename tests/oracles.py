"""Brute-force truths, written as plainly as possible and sharing no code with what they check."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

SLACK = 1e-12
DEPTH = 1e-9


def cells_by_linear_program(v):
    """Return the sign vectors of all cells of {z : v_i0 - v_i . z = 0} that have room, by one program per prefix.

    v has shape (n, 1 + K): margin and contrasts. A cell is kept when some z in a large box has these signs
    with every |value| at least DEPTH of its row's size.
    """
    n, width = v.shape
    size = np.abs(v).max(axis=1)
    prefixes = [()]
    for i in range(n):
        if size[i] == 0.0:
            prefixes = [(*p, False) for p in prefixes]
            continue
        grown = []
        for prefix in prefixes:
            for sign in (False, True):
                if _has_room(v, size, (*prefix, sign), width - 1):
                    grown.append((*prefix, sign))
        prefixes = grown
    return [np.array(p) for p in prefixes]


def _has_room(v, size, signs, k):
    # Homogeneous coordinates (t, w) in a box with t >= depth: all cells are visible, far ones too.
    # Variables t, w_1 .. w_K, depth; maximise depth with sign * (t m - w.g) >= depth * size.
    rows, right = [], []
    for i, sign in enumerate(signs):
        if size[i] == 0.0:
            continue
        s = 1.0 if sign else -1.0
        rows.append(np.concatenate([-s * v[i, :1], s * v[i, 1:], [size[i]]]))
        right.append(0.0)
    rows.append(np.concatenate([[-1.0], np.zeros(k), [1.0]]))
    right.append(0.0)
    bounds = [(0.0, 1.0)] + [(-1.0, 1.0)] * k + [(None, 1.0)]
    objective = np.zeros(k + 2)
    objective[-1] = -1.0
    result = linprog(objective, A_ub=np.array(rows), b_ub=np.array(right), bounds=bounds, method="highs")
    return result.status == 0 and -result.fun > DEPTH


def best_over_cells(problem, cells, step=0):
    """Return the best utility among sign vectors that meet the bounds and the model's own decisions, or None."""
    best = None
    for decisions in [problem.margin > 0.0, *cells]:
        utility, values = problem.evaluate(decisions)
        inside = (values >= problem.lower[step] - SLACK).all() and (values <= problem.upper[step] + SLACK).all()
        if inside and (best is None or utility > best):
            best = utility
    return best


def best_by_all_cells(problem, step=0):
    """Return the optimum over every cell, found by linear programs (tiny n, any K)."""
    v = np.column_stack([problem.margin, problem.contrasts])
    return best_over_cells(problem, cells_by_linear_program(v), step)


def best_by_all_pairs_of_lines(problem, step=0):
    """Return the optimum for K = 2 by stepping off every crossing of two lines into its cells, and off every line.

    Each cell of an arrangement of lines has a vertex on its border, or is bounded by parallel lines only; points
    on each line beyond its crossings and between parallel lines are tried as well.
    """
    m, g = problem.margin, problem.contrasts
    lines = [i for i in range(len(m)) if np.abs(g[i]).max() > 1e-15 * max(abs(m[i]), 1e-300)]
    moves = np.zeros(len(m), dtype=bool)
    moves[lines] = True
    best = best_over_cells(problem, [], step)
    best = _best_point(problem, np.zeros((1, 2)), moves, step, best)
    for i in lines:
        direction = np.array([-g[i, 1], g[i, 0]]) / np.linalg.norm(g[i])
        origin = m[i] * g[i] / (g[i] @ g[i])
        level, slope = m - g @ origin, -(g @ direction)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossings = -level / slope
        crossings = np.sort(crossings[np.isfinite(crossings) & (np.abs(slope) > 1e-13 * np.abs(g).max(axis=1))])
        if crossings.size == 0:
            positions = np.zeros(1)
        else:
            gaps = np.diff(crossings)
            wide = gaps > 1e-9 * np.maximum(np.abs(crossings[:-1]), np.abs(crossings[1:]))
            middles = (0.5 * (crossings[:-1] + crossings[1:]))[wide]
            reach = 1.0 + np.abs(crossings).max()
            positions = np.concatenate([[crossings[0] - reach], middles, [crossings[-1] + reach]])
        normal = g[i] / np.linalg.norm(g[i])
        points = origin + positions[:, None] * direction
        value = m[None, :] - points @ g.T
        scale = np.abs(m) + np.abs(points) @ np.abs(g).T
        on_line = np.abs(value) <= 1e-10 * scale
        for side in (-1.0, 1.0):
            toward = -side * (g @ normal)
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(~on_line & (value * toward[None, :] < 0), -value / toward[None, :], np.inf)
            step_size = 0.5 * room.min(axis=1)
            step_size = np.where(np.isfinite(step_size), step_size, 1.0 + np.abs(points).max(axis=1))
            best = _best_point(problem, points + side * step_size[:, None] * normal, moves, step, best)
    return best


def _best_point(problem, z, moves, step, best):
    """Return the better of ``best`` and the best of the points z that meet the bounds and are off every line."""
    level = problem.margin[None, :] - z @ problem.contrasts.T
    scale = np.abs(problem.margin) + np.abs(z) @ np.abs(problem.contrasts).T
    clear = ((np.abs(level) > 1e-10 * scale) | ~moves).all(axis=1)
    decisions = level[clear] > 0.0
    values = decisions @ problem.effects
    inside = ((values >= problem.lower[step] - SLACK) & (values <= problem.upper[step] + SLACK)).all(axis=1)
    utility = (problem.offset + decisions @ problem.gain)[inside]
    return best if not utility.size else max(float(utility.max()), -np.inf if best is None else best)


def best_threshold(problem, step=0):
    """Return the optimum for K = 1: try a point between every two neighbouring breakpoints."""
    m, g = problem.margin, problem.contrasts[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        points = np.unique((m / g)[g != 0.0])
    points = points[np.isfinite(points)]
    if points.size == 0:
        candidates = np.zeros(1)
    else:
        wide = np.diff(points) > 1e-9 * np.maximum(np.abs(points[1:]), np.abs(points[:-1]))
        middles = (0.5 * (points[1:] + points[:-1]))[wide]
        candidates = np.concatenate([[points[0] - 1.0 - abs(points[0])], middles, [points[-1] + 1.0 + abs(points[-1])]])
    return best_over_cells(problem, [m - z * g > 0.0 for z in candidates], step)


def exact_cells(margin, contrasts):
    """Return {decisions: clearance} of every cell that has a corner, in rational arithmetic (doubles are rationals).

    Each corner is where K hyperplanes meet; a step off it to every side leads into its cells. The clearance of a cell
    is that of the mean of the points found in it: the smallest |m - z.g| of a row in units of |m| + sum |z_k g_k|,
    which no scaling of rows or columns changes.
    """
    n, k = contrasts.shape
    m = [Fraction(float(value)) for value in margin]
    g = [[Fraction(float(value)) for value in row] for row in contrasts]
    moves = [any(row) for row in g]
    points = {}
    for chosen in itertools.combinations(range(n), k):
        corner = _solve_exactly([g[i] for i in chosen], [m[i] for i in chosen])
        if corner is None:
            continue
        level = [m[i] - _dot(g[i], corner) for i in range(n)]
        for signs in itertools.product((1, -1), repeat=k):
            away = _solve_exactly([g[i] for i in chosen], [Fraction(-sign) for sign in signs])
            slope = [-_dot(g[i], away) for i in range(n)]
            if any(moves[i] and level[i] == 0 and slope[i] == 0 for i in range(n)):
                continue
            room = min((-a / b for a, b in zip(level, slope, strict=True) if a * b < 0), default=Fraction(2))
            z = [a + room / 2 * b for a, b in zip(corner, away, strict=True)]
            decisions = tuple(m[i] - _dot(g[i], z) > 0 for i in range(n))
            points.setdefault(decisions, []).append(z)
    found = {}
    for decisions, inside in points.items():
        z = [sum(values) / len(inside) for values in zip(*inside, strict=True)]
        found[decisions] = min(
            float(abs(m[i] - _dot(g[i], z)) / (abs(m[i]) + sum(abs(a * b) for a, b in zip(g[i], z, strict=True))))
            for i in range(n)
            if moves[i]
        )
    return found


def _dot(one, two):
    return sum((a * b for a, b in zip(one, two, strict=True)), Fraction(0))


def _solve_exactly(matrix, right):
    """Return x with matrix x = right, or None where the matrix is singular."""
    k = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(k):
        pivot = next((r for r in range(i, k) if rows[r][i] != 0), None)
        if pivot is None:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for r in range(k):
            if r != i and rows[r][i] != 0:
                rows[r] = [value - rows[r][i] * other for value, other in zip(rows[r], rows[i], strict=True)]
    return [row[k] for row in rows]


def sweep_in_numpy(level, slope, table, start_offset, lower, upper):
    """Return the best utility along s in R where row i decides 1 iff level_i + s slope_i > 0, by trying every gap."""
    with np.errstate(divide="ignore", invalid="ignore"):
        points = np.unique((-level / slope)[slope != 0.0])
    points = points[np.isfinite(points)]
    if points.size == 0:
        positions = [0.0]
    else:
        wide = np.diff(points) > 1e-9 * np.maximum(np.abs(points[1:]), np.abs(points[:-1]))
        middles = (0.5 * (points[1:] + points[:-1]))[wide]
        positions = [points[0] - 1.0 - abs(points[0]), *middles, points[-1] + 1.0 + abs(points[-1])]
    best = -np.inf
    for s in positions:
        total = (level + s * slope > 0.0).astype(float) @ table
        if (total[1:] >= lower - SLACK).all() and (total[1:] <= upper + SLACK).all():
            best = max(best, start_offset + total[0])
    return best


def merged_in_numpy(rows, n_coordinates):
    """Return {key of the plane: summed gains and effects} and the constant, row by row."""
    planes, constant = {}, np.zeros(rows.shape[1] - n_coordinates)
    for row in rows:
        v, extra = row[:n_coordinates], row[n_coordinates:]
        if np.abs(v[1:]).max(initial=0.0) <= 1e-15 * np.abs(v).max():
            constant += extra * (v[0] > 0.0)
            continue
        largest = v[np.argmax(np.abs(v))]
        key = tuple(np.round(v / largest * 2.0**40).astype(np.int64))
        sign = 1.0 if largest > 0 else -1.0
        planes[key] = planes.get(key, 0.0) + sign * extra
        if largest < 0:
            constant += extra
    return planes, constant


def smoothed_in_numpy(margin, contrasts, table, z, tau):
    """Return the sums of a table's columns and their gradients when each decision is a sigmoid, row by row."""
    sums = np.zeros(table.shape[1])
    gradients = np.zeros((table.shape[1], len(z)))
    for m, g, amounts in zip(margin, contrasts, table, strict=True):
        chance = 1.0 / (1.0 + np.exp(-(m - z @ g) / tau))
        sums += chance * amounts
        gradients -= np.outer(amounts, g) * chance * (1.0 - chance) / tau
    return sums, gradients


def dual_value(problem, multipliers, step=0):
    """Return the dual's objective at some multipliers: never below the primal's optimum."""
    fair = problem.margin - problem.contrasts @ (problem.mixing.T @ multipliers)
    positive, negative = np.maximum(multipliers, 0.0), np.maximum(-multipliers, 0.0)
    with np.errstate(invalid="ignore"):
        priced = np.where(positive > 0, positive * problem.upper[step], 0.0) - np.where(
            negative > 0, negative * problem.lower[step], 0.0
        )
    return float(problem.weight @ np.maximum(fair, 0.0) + priced.sum())
