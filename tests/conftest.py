"""Settings that every test shares: the path to the oracles and hypothesis profiles without deadlines."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# These are scripts and what they import: nothing in them is a test.
collect_ignore = ["fuzz"]

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")
