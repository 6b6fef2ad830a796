from __future__ import annotations

import sys

import pytest

from evenhand.engines import arrow, spark
from evenhand.engines import duckdb as duck
from evenhand.errors import MissingExtraError


@pytest.mark.parametrize(
    ("module", "package", "absent"),
    [(duck, "duckdb", "duckdb"), (spark, "pyspark", "pyspark.errors"), (arrow, "pyarrow", "pyarrow")],
)
def test_an_absent_package_is_named_with_its_extra(module, package, absent, monkeypatch):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError, match=rf"needs {package}: pip install 'evenhand\[engines\]'"):
        module.learn_rule("rows.parquet", y="y", sensitive_features="sex", p_y="p", p_group={"F": "f", "M": None})
