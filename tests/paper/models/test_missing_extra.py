from __future__ import annotations

import importlib
import sys

import pytest

from evenhand.errors import MissingExtraError


@pytest.mark.parametrize("package", ["torch", "skorch"])
def test_importing_the_models_without_their_extra_says_what_to_install(monkeypatch, package):
    for name in [name for name in sys.modules if name.startswith("evenhand.paper.models")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as caught:
        importlib.import_module("evenhand.paper.models")
    assert str(caught.value) == f"evenhand.paper.models needs {package}: pip install 'evenhand[torch]'."
    assert caught.value.extra == "torch"


@pytest.mark.parametrize("feature", ["ResNet18", "CLIPZeroShot"])
def test_using_transformers_without_it_says_what_to_install(monkeypatch, tmp_path, feature):
    from evenhand.paper.models import CLIPZeroShot
    from evenhand.paper.models.resnet import load_body

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=f"{feature} needs transformers"):
        load_body(None) if feature == "ResNet18" else CLIPZeroShot(model=tmp_path).similarities([])
