from __future__ import annotations

import time
from types import SimpleNamespace

from evenhand.search import _compiling


def test_a_kernel_that_is_not_ready_in_time_is_announced(monkeypatch, capsys):
    monkeypatch.setattr(_compiling, "PATIENCE", 0.01)
    with _compiling.notice_of_compilation(SimpleNamespace(signatures=[])):
        time.sleep(0.2)
    assert capsys.readouterr().err.strip() == _compiling.NOTICE


def test_a_kernel_that_is_ready_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(_compiling, "PATIENCE", 0.01)
    kernel = SimpleNamespace(signatures=["for another kind of arguments"])
    with _compiling.notice_of_compilation(kernel):
        kernel.signatures.append("ready before the second is over")
        time.sleep(0.05)
    assert capsys.readouterr().err == ""
