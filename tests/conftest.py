"""Settings that every test shares: one thread per process, the path to the oracles, hypothesis without deadlines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Tests run in two processes. OpenMP threads that wait for a busy core use more time than they save.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from hypothesis import HealthCheck, settings  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

# These are scripts and what they import: nothing in them is a test.
collect_ignore = ["fuzz"]

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")
