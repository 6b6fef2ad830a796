"""Run every benchmark, or the ones named: ``python -m benchmarks search metrics``."""

from __future__ import annotations

import importlib
import sys

ALL = (
    "search", "compile", "metrics", "confidence", "onnx", "apply", "one_row", "engines", "images", "seldonian",
    "crossfit", "folds", "safety", "many_groups", "objectives", "peers",
)  # fmt: skip


def main() -> None:
    """Run the benchmarks named on the command line, or all."""
    for name in sys.argv[1:] or ALL:
        print(f"== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
