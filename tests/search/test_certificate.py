"""Certificates: the checker confirms true ones, and what it confirms of damaged ones is true."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.search import Certified, Problem, Solution
from oracles import exact_cells
from problems import random_problem

ROOT = Path(__file__).parents[2]
CHECKER = ROOT / "tools" / "check_certificate.py"
specification = importlib.util.spec_from_file_location("check_certificate", CHECKER)
checker = importlib.util.module_from_spec(specification)
specification.loader.exec_module(checker)


def parts_of(certificate):
    """Return a certificate and its table as they are read from files."""
    return json.loads(certificate.to_json()), [row.split(",") for row in certificate.rows_csv().splitlines()[1:]]


def is_confirmed(data, table):
    try:
        checker.check(data, table)
    except checker.Refused:
        return False
    return True


def is_true(data, table):
    """Tell whether a claim is true, by every cell in exact arithmetic."""
    claim = data["claim"]
    k = len(claim["z"])
    rows = [[Fraction(float(value)) for value in row] for row in table]
    margin, contrasts = [row[0] for row in rows], [row[1 : 1 + k] for row in rows]
    z = [Fraction(value) for value in claim["z"]]
    slack = Fraction(claim["slack"])

    def counted(decisions):
        chosen = [row for row, decided in zip(rows, decisions, strict=True) if decided]
        utility = Fraction(claim["offset"]) + sum(row[1 + k] for row in chosen)
        values = [sum((row[2 + k + c] for row in chosen), Fraction(0)) for c in range(len(claim["values"]))]
        ends = zip(values, claim["lower"], claim["upper"], strict=True)
        inside = all(
            (low is None or v >= Fraction(low) - slack) and (high is None or v <= Fraction(high) + slack)
            for v, low, high in ends
        )
        return utility, values, inside

    decided = [m > sum(a * b for a, b in zip(g, z, strict=True)) for m, g in zip(margin, contrasts, strict=True)]
    utility, values, inside = counted(decided)
    if not inside or utility != Fraction(claim["utility"]) or values != [Fraction(v) for v in claim["values"]]:
        return False
    cells = [tuple(m > 0 for m in margin), *every_cell(margin, contrasts)]
    return not any(other > utility and fine for other, _, fine in map(counted, cells))


def every_cell(margin, contrasts):
    """Return every cell, those without a corner among them: lines that are far from everything make corners."""
    if not any(any(row) for row in contrasts):
        return [tuple(m > 0 for m in margin)]
    far, k = 2.0**60, len(contrasts[0])
    extra = [[float(j == axis) for j in range(k)] for axis in range(k) for _ in range(2)]
    ends = [side * far for _ in range(k) for side in (1.0, -1.0)]
    m = np.array([*map(float, margin), *ends])
    g = np.array([*([float(a) for a in row] for row in contrasts), *extra])
    return {cell[: len(margin)] for cell in exact_cells(m, g)}


def solved(problem):
    """Return the certified optimum of a problem's first step, or None where there is no rule."""
    found = Certified().solve(problem)[0]
    return found if isinstance(found, Solution) else None


@pytest.mark.parametrize("kind", ["plain", "tied", "weighted", "duplicated", "degenerate", "asymmetric"])
@pytest.mark.parametrize("k", [1, 2])
def test_certificates_are_confirmed_by_the_checker(k, kind):
    confirmed = 0
    for seed in range(8):
        solution = solved(random_problem(seed, n=30 if kind != "tied" else 16, k=k, kind=kind))
        if solution is None:
            continue
        assert solution.status == "optimal"
        certificate = solution.certificate()
        message = checker.check(*parts_of(certificate))
        assert f"{certificate.boxes:,} boxes" in message
        assert float(Fraction(certificate.claim["utility"])) == pytest.approx(solution.utility, abs=1e-12)
        confirmed += 1
    assert confirmed >= 3


def worse_rules(n, count):
    """Yield feasible rules that are not optimal, as what a prover makes of them: at most one of a problem."""
    for seed in range(count):
        problem = random_problem(seed, n=n, k=2, kind="plain")
        solution = solved(problem)
        for z in np.random.default_rng(seed).normal(size=(40, 2)):
            utility, values = problem.evaluate(problem.decide(z))
            inside = solution is not None and problem.strictly_inside(z) and problem.excess(values) == 0.0
            if inside and utility < solution.utility - 1e-9:
                yield parts_of(solution.prove(z, utility))
                break


def test_a_rule_that_is_not_optimal_is_refused():
    found = list(worse_rules(10, 8))
    assert len(found) >= 3
    for data, table in found:
        assert not is_true(data, table)
        assert not is_confirmed(data, table)


def test_forged_bounds_of_a_rule_that_is_not_optimal_are_refused():
    """Where the better rule is, the proof says that a bound holds."""
    found = list(worse_rules(40, 8))
    assert len(found) >= 3
    for data, table in found:
        zero, first = [0.0, 0.0], [1.0, 0.0]
        for forged in ([1, zero], [0, zero], [1, first], [0, first], [0, [-1.0, 0.0]], [1, [-2.0, 3.0]]):
            faces = [[["bound", *forged] if node == ["cells"] else node for node in face] for face in data["faces"]]
            assert not is_confirmed({**data, "faces": faces}, table)
            assert not is_confirmed({**data, "faces": [[["bound", *forged]]] * len(faces)}, table)


def mutated(data, table, rng):
    """Return a certificate and a table of which one thing is changed, and whether the claim or the table is another."""
    data, table = copy.deepcopy(data), [list(row) for row in table]
    kind = int(rng.integers(8))
    if kind == 0:
        row, column = rng.integers(len(table)), rng.integers(len(table[0]))
        old = float(table[row][column])
        table[row][column] = repr(float(rng.choice([old * 1.5, -old, old + 0.01, 0.0, np.nextafter(old, 9.0)])))
    elif kind == 1:
        del table[int(rng.integers(len(table)))]
        data["claim"]["rows"] -= 1
    elif kind == 2:
        name = ("z", "lower", "upper", "values", "scale")[rng.integers(5)]
        at = int(rng.integers(len(data["claim"][name])))
        old = data["claim"][name][at]
        change = float(rng.choice([0.5, -1.0, 1.01, 2.0, 1.0 + 1e-15]))
        data["claim"][name][at] = None if old is None else str(Fraction(old) * Fraction(change))
    elif kind == 3:
        name = ("utility", "offset", "slack")[rng.integers(3)]
        data["claim"][name] = str(
            Fraction(data["claim"][name]) + Fraction(float(rng.choice([1e-9, -1e-9, 0.05, -0.05])))
        )
    else:
        _damage_proof(data, rng)
    return data, table, kind < 4


def _damage_proof(data, rng):
    face = data["faces"][int(rng.integers(len(data["faces"])))]
    at = int(rng.integers(len(face)))
    kind = int(rng.integers(6))
    if kind == 0:
        face[at] = int(rng.integers(-1, 4))
    elif kind == 1:
        face[at] = ["bound", int(rng.integers(2)), rng.normal(size=len(data["claim"]["values"])).tolist()]
    elif kind == 2:
        face[at] = ["cells"]
    elif kind == 3:
        del face[at]
    elif kind == 4:
        face.insert(at, face[int(rng.integers(len(face)))])
    elif isinstance(face[at], list) and len(face[at]) == 3:
        face[at][2] = [[value * 1.1, -value, float("nan"), "x"][rng.integers(4)] for value in face[at][2]]


def mutants_that_are_confirmed(count, seed):
    """Return, of mutated certificates and tables, how many were confirmed and how many of these claims are false."""
    rng = np.random.default_rng(seed)
    originals = []
    while len(originals) < max(4, count // 250):
        problem = random_problem(int(rng.integers(2**31)), n=int(rng.integers(5, 9)), k=int(rng.integers(1, 3)))
        solution = solved(problem)
        if solution is not None:
            originals.append(parts_of(solution.certificate()))
    confirmed = same = false = 0
    for number in range(count):
        original = originals[number % len(originals)]
        data, table, other_claim = mutated(*original, rng)
        if is_confirmed(data, table):
            confirmed += 1
            # The claim that was proven before is true, whatever its new proof.
            same += not other_claim
            false += other_claim and not is_true(data, table)
    return confirmed, same, false


def test_mutated_certificates_are_refused_or_claim_what_is_true():
    confirmed, same, false = mutants_that_are_confirmed(250, 0)
    assert false == 0
    assert same > 0
    assert confirmed < 125


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("faces"),
        lambda d: d.update(schema="evenhand-certificate/2"),
        lambda d: d["faces"].pop(),
        lambda d: d["claim"].update(z=[1.0, 2.0, 3.0]),
        lambda d: d["claim"].update(z=["x"]),
        lambda d: d["claim"].update(lower=[]),
        lambda d: d["claim"].update(scale=[0.0] * len(d["claim"]["z"])),
        lambda d: d["claim"].update(slack=-1.0),
        lambda d: d["claim"].update(utility=float("nan")),
        lambda d: d.update(claim=[]),
        lambda d: d.update(faces=[{}] * len(d["faces"])),
        lambda d: d.update(faces=[[True]] * len(d["faces"])),
    ],
)
def test_what_is_not_a_certificate_is_refused(damage):
    data, table = parts_of(solved(random_problem(1, n=20, k=2)).certificate())
    assert is_confirmed(data, table)
    damage(data)
    assert not is_confirmed(data, table)


def test_a_certificate_of_a_learnt_rule_is_checked_by_a_program_of_its_own(tmp_path):
    data = eh.datasets.make_zafar(2000, random_state=0)
    rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion="eo", tolerance=0.05)
    proof, rows = tmp_path / "proof.json", tmp_path / "rows.csv"
    rule.solution_.certificate().save(proof, rows=rows)

    def run():
        # -I: without the paths of this environment, so that nothing of evenhand can be imported.
        return subprocess.run([sys.executable, "-I", CHECKER, proof, rows], capture_output=True, text=True, check=False)

    done = run()
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "confirmed"), done.stdout + done.stderr
    assert f"no feasible rule has a utility above {rule.solution_.utility:.6g}"[:-1] in done.stdout
    rows.write_text(rows.read_text().replace("0.", "0.0", 1))
    assert (run().returncode, run().stdout.strip()) == (
        1,
        "refused: this is not the table that the certificate was made for",
    )


def test_the_checker_is_short_and_imports_nothing_of_evenhand():
    text = CHECKER.read_text()
    assert len(text.splitlines()) <= 300
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported <= set(sys.stdlib_module_names)


def test_certificates_of_known_groups_are_confirmed():
    data = eh.datasets.make_zafar(400, random_state=0)
    group = (np.asarray(data.group) == "1").astype(int)
    joint = np.stack([1 - data.p_y, data.p_y], axis=1)[:, :, None] * np.eye(2)[group][:, None]
    known = eh.learn_rule(data.y, group, data.p_y, joint, criterion="eo", tolerance=0.05)
    assert is_confirmed(*parts_of(known.solution_.certificate()))


def test_rows_that_share_their_scores_are_one_plane():
    """The leaves of a tree: 1,500 rows on 40 planes, many of which meet in nearly one point."""
    rng = np.random.default_rng(0)
    leaf = rng.integers(0, 40, 1500)
    joint = rng.dirichlet(np.ones(4), 40).reshape(40, 2, 2)[leaf]
    cell = (rng.random((1500, 1)) > joint.reshape(1500, 4).cumsum(axis=1)[:, :3]).sum(axis=1)
    rule = eh.learn_rule(cell // 2, cell % 2, joint[:, 1].sum(axis=1), joint, criterion="eo", tolerance=0.1)
    assert is_confirmed(*parts_of(rule.solution_.certificate()))
    joint = joint + rng.uniform(-1e-8, 1e-8, joint.shape)
    joint /= joint.sum(axis=(1, 2), keepdims=True)
    rule = eh.learn_rule(cell // 2, cell % 2, joint[:, 1].sum(axis=1), joint, criterion="eo", tolerance=0.1)
    with pytest.raises(eh.InputError, match="nearly the same scores"):
        rule.solution_.certificate()


def test_what_has_no_certificate_is_refused_with_a_sentence():
    data = eh.datasets.make_zafar(400, random_state=0)
    rng = np.random.default_rng(0)
    contrasts = rng.normal(size=(300, 2))
    margin = contrasts @ [1.0, 0.5]
    gain = np.where(rng.random(300) < 0.5, 1.0, -1.0) / 300
    pencil = solved(Problem(margin, contrasts, gain, contrasts / 300, np.full(2, -9.0), np.full(2, 9.0)))
    with pytest.raises(eh.InputError, match="meet in nearly one point"):
        pencil.certificate()
    many = solved(random_problem(0, n=20, k=3))
    with pytest.raises(eh.InputError, match="one or two contrasts"):
        many.certificate()
    found = eh.learn_rule(
        data.y, data.group, data.p_y, data.p_joint, criterion="eo", search="directions", tolerance=0.3
    )
    with pytest.raises(eh.InputError, match="the status of this one is 'found'"):
        found.solution_.certificate()


def test_a_rule_that_is_copied_leaves_its_rows_behind():
    data = eh.datasets.make_zafar(3000, random_state=0)
    rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_group, tolerance=0.1)
    assert rule.solution_.certificate().boxes > 0
    carried = pickle.dumps(rule)
    assert len(carried) < 20_000
    assert pickle.loads(carried) == rule
    with pytest.raises(eh.InputError, match="learn the rule again"):
        pickle.loads(carried).solution_.certificate()
    assert eh.Rule.from_json(rule.to_json()) == rule
    assert copy.deepcopy(rule) == rule


def test_cells_too_narrow_for_doubles_count_for_the_checker():
    """Three planes that nearly meet: the cell between them is far below a double's resolution of z."""
    tiny = 2.0**-60
    margin = np.array([1.0, 1.0, 1.0 + 0.0])
    contrasts = np.array([[1.0, tiny], [1.0, -tiny], [1.0, 0.0]])
    problem = Problem(
        margin, contrasts, np.array([1.0, 1.0, -1.0]) / 3, np.zeros((3, 2)), np.full(2, -1.0), np.full(2, 1.0)
    )
    solution = solved(problem)
    data, table = parts_of(solution.prove(solution.z, solution.utility))
    assert is_confirmed(data, table) == is_true(data, table)
