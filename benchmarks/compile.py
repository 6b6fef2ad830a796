"""The cost of the first call on a new machine: CPU seconds with an empty cache of compiled kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

FIRST = """
import time, numpy as np, evenhand as eh
data = eh.datasets.make_zafar(500, random_state=0)
eh.learn_rule  # imports the library before the clock starts
rng = np.random.default_rng(0)

def fit(label, *rows, **options):
    started = time.process_time()
    eh.learn_rule(*rows, tolerance=0.3, **options)
    print(f"    {label}: {time.process_time() - started:.1f} CPU s", flush=True)

def groups(k):
    p_y, p_group = rng.random(400), rng.dirichlet(np.ones(k + 1), size=400)
    rows = (rng.random(400) < p_y).astype(int), np.arange(400) % (k + 1), p_y, p_group
    fit(f"K = {k} (DP over {k + 1} groups)", *rows, criterion="dp", search=eh.Certified(max_visits=100_000))
"""
RUNS = {
    "K = 1 alone (at most 2)": "fit('K = 1 (DP)', data.y, data.group, data.p_y, data.p_group, criterion='dp')",
    "K = 2 first, then further sizes (at most 8, aim 4; 3 each, aim 1)": (
        "fit('K = 2 (EO)', data.y, data.group, data.p_y, data.p_joint, criterion='eo')\n"
        "for k in (3, 4, 5, 8):\n    groups(k)"
    ),
    "known groups alone": (
        "group = np.unique(data.group, return_inverse=True)[1]\n"
        "known = np.stack([1 - data.p_y, data.p_y], axis=1)[:, :, None] * np.eye(2)[group][:, None]\n"
        "fit('K = 2 (EO, group known)', data.y, data.group, data.p_y, known, criterion='eo')"
    ),
}


def main() -> None:
    """Print the CPU seconds of first calls, each in a process with an empty cache."""
    for label, calls in RUNS.items():
        print(label, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            subprocess.run(
                [sys.executable, "-c", FIRST + calls], env=environment, check=True, stderr=subprocess.DEVNULL
            )


if __name__ == "__main__":
    main()
