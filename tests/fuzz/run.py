"""Fuzz every target for a while: ``python tests/fuzz/run.py --seconds 120 --seed 7``.

Prints what raised anything but the library's own exceptions, with the seed that repeats it, and ends with code 1.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from targets import TARGETS

from evenhand.errors import EvenhandError

SLOW = 20.0  # four times the budget of a search over many constraints


def attempt(name: str, seed: int) -> tuple[str, float]:
    """Run a target once; return what was wrong with it ("" for nothing), and the seconds."""
    started = time.thread_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", category=UserWarning, module="evenhand|fuzz|targets")
            TARGETS[name](np.random.default_rng([seed, sorted(TARGETS).index(name)]))
    except EvenhandError as error:
        wrong = "" if str(error).strip() else "an error that says nothing"
    except Warning as warning:
        wrong = "" if type(warning).__module__.startswith("evenhand") else traceback.format_exc(limit=-3)
    except Exception:
        wrong = traceback.format_exc(limit=-4)
    else:
        wrong = ""
    return wrong, time.thread_time() - started


def main() -> int:
    """Fuzz until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    options = parser.parse_args()
    names = options.target or sorted(TARGETS)
    findings: dict[str, str] = {}
    runs = dict.fromkeys(names, 0)
    deadline = time.monotonic() + options.seconds
    seed = options.seed
    while time.monotonic() < deadline:
        for name in names:
            wrong, seconds = attempt(name, seed)
            runs[name] += 1
            if seconds > SLOW:
                wrong = wrong or f"took {seconds:.1f} s"
            last = wrong.strip().splitlines()[-1] if wrong else ""
            if wrong and f"{name}: {last[:80]}" not in findings:
                findings[f"{name}: {last[:80]}"] = wrong
                print(f"--- {name}, seed {seed}\n{wrong}", flush=True)
        seed += 1
    print(", ".join(f"{name} {count:,}" for name, count in runs.items()))
    print(f"{sum(runs.values()):,} inputs, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
