"""Give every parameter of every public callable something wrong, then draw: ``python tests/fuzz/run.py --seed 7``.

First each parameter is given each hostile value, in an order that the seed draws, for at most half of the time; then
the targets are run with inputs drawn at random until the time is up. Prints what raised anything but the library's own
exceptions, with what repeats it, and ends with code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from calls import calls, hostile_values, problem_with
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


class TooSlow(BaseException):
    """A call that did not end."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raise in the midst of a call that does not end."""

    def ring(*_: object) -> None:
        raise TooSlow(f"did not end in {3 * SLOW:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 3 * SLOW)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def one_at_a_time(name: str, parameter: str, label: str) -> str:
    """Give one parameter one hostile value; return what is wrong with the answer."""
    return problem_with(name, {parameter: hostile_values(calls()[name], parameter)[label]()})


def cases() -> list[tuple[str, str, str]]:
    """Return every public callable with every parameter and every hostile value."""
    return [
        (name, parameter, label)
        for name, call in calls().items()
        for parameter in call.parameters
        for label in hostile_values(call, parameter)
    ]


class Findings:
    """What was wrong, each kind once."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()

    def add(self, where: str, wrong: str) -> None:
        """Print a finding of a kind that was not seen yet."""
        last = wrong.strip().splitlines()[-1] if wrong else ""
        kind = f"{where.partition(',')[0]}: {last[:80]}"
        if wrong and kind not in self.kinds:
            self.kinds.add(kind)
            print(f"--- {where}\n{wrong}", flush=True)


def main() -> int:
    """Fuzz until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--call", help="part of a public name: give only its parameters everything")
    options = parser.parse_args()
    findings, started = Findings(), time.monotonic()
    every = [] if options.target else cases()
    if options.call:
        every = [case for case in every if options.call in case[0]]
    done = 0
    for place in np.random.default_rng(options.seed).permutation(len(every)):
        if not options.call and time.monotonic() > started + options.seconds / 2:
            break
        name, parameter, label = every[place]
        try:
            with limited():
                wrong = one_at_a_time(name, parameter, label)
        except TooSlow as slow:
            wrong = str(slow)
        findings.add(f"{name}, {parameter} is {label}", wrong)
        done += 1
    if every:
        print(f"{done:,} of {len(every):,} hostile arguments, one at a time")
    names = [] if options.call else options.target or sorted(TARGETS)
    runs = dict.fromkeys(names, 0)
    seed = options.seed
    while names and time.monotonic() < started + options.seconds:
        for name in names:
            try:
                with limited():
                    wrong, seconds = attempt(name, seed)
            except TooSlow as slow:
                wrong, seconds = str(slow), 0.0
            runs[name] += 1
            if seconds > SLOW:
                wrong = wrong or f"took {seconds:.1f} s"
            findings.add(f"{name}, seed {seed}", wrong)
        seed += 1
    print(", ".join(f"{name} {count:,}" for name, count in runs.items()))
    print(f"{done + sum(runs.values()):,} inputs, {len(findings.kinds)} findings")
    return 1 if findings.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
