"""Benchmarks: each module prints figures that a reader can make again. Run all with ``make bench``."""
