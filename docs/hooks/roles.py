"""What Sphinx would understand in the docstrings, said for mkdocstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|meth|mod|attr|exc):`(~?)([\w.]+)`")

_LITERAL = re.compile(r"^::\n", re.MULTILINE)


def _code(match: re.Match[str]) -> str:
    name = match[2].rpartition(".")[2] if match[1] else match[2]
    return f"`{name}`"


class Roles(griffe.Extension):
    """Names in code font instead of roles, and functions that are made when a module is imported."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of every object when it is collected."""
        if obj.docstring is not None:
            text = _LITERAL.sub("", _ROLE.sub(_code, obj.docstring.value))
            # A type is read as Python where that is possible, and would be shown as a difference.
            obj.docstring.value = text.replace("array-like", "array\u2011like")

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Give the metrics that a factory makes the documentation that they have when they are imported."""
        if pkg.path != "evenhand":
            return
        module, imported = pkg["auditing.metrics"], importlib.import_module("evenhand.auditing.metrics")
        for name in imported.__all__:
            found, made = module[name], getattr(imported, name)
            if found.is_attribute:
                lines = {"lineno": found.lineno, "endlineno": found.endlineno}
                function = griffe.Function(name, parameters=_parameters(made), **lines)
                module.set_member(name, function)
                function.docstring = griffe.Docstring(made.__doc__, parent=function, parser="numpy")
                self.on_object(obj=function)


def _parameters(function: Any) -> griffe.Parameters:
    found = inspect.signature(function).parameters.values()
    kinds = {
        inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
        inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    }
    return griffe.Parameters(
        *(
            griffe.Parameter(p.name, kind=kinds[p.kind], default=None if p.default is p.empty else repr(p.default))
            for p in found
        )
    )
