"""ink2tex: handwritten mathematics to LaTeX.

>>> import ink2tex
>>> reader = ink2tex.load()
>>> reader.recognize("photo.jpg").latex  # doctest: +SKIP
'x^{2} + 1'
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` alone would be most of what importing this package costs
if TYPE_CHECKING:
    from typing import Any

    from ink2tex.errors import Ink2TexError
    from ink2tex.ink import Ink
    from ink2tex.runtime.inputs import Input
    from ink2tex.runtime.recognizer import Recognizer, load
    from ink2tex.runtime.result import Alternative, Box, Result

__version__ = "0.1.0"

__all__ = ["Alternative", "Box", "Ink", "Ink2TexError", "Recognizer", "Result", "load", "recognize"]

#: Where the public names live; they are imported when first asked for, so that `import ink2tex` costs nothing.
_HOMES = {
    "Alternative": "ink2tex.runtime.result",
    "Box": "ink2tex.runtime.result",
    "Ink": "ink2tex.ink",
    "Ink2TexError": "ink2tex.errors",
    "Recognizer": "ink2tex.runtime.recognizer",
    "Result": "ink2tex.runtime.result",
    "load": "ink2tex.runtime.recognizer",
}

_default: Recognizer | None = None


def recognize(source: Input) -> Result:
    """Read one input with the weights of the package, which are loaded once."""
    global _default
    if _default is None:
        from ink2tex.runtime.recognizer import load

        _default = load()
    return _default.recognize(source)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ink2tex' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
