"""Benchmarks: each module prints figures that a reader can reproduce. Run all with ``make bench``."""
