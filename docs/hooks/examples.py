"""Put the scripts of ``examples/`` into the site, so that the gallery can offer them for download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).parents[2] / "examples"


def on_files(files: Files, *, config: Any) -> Files:
    """Add each script under ``examples/``."""
    for script in sorted(EXAMPLES.glob("*.py")):
        files.append(File.generated(config, f"examples/{script.name}", abs_src_path=str(script)))
    return files
