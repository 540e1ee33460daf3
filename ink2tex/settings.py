"""Frozen dataclasses from plain mappings (YAML, JSON), strictly.

Recipes and checkpoints describe themselves as nested mappings. A key that no field answers to, a value of the
wrong type or a missing key is an error that names the place and, for a misspelt key, the field that was meant.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from ink2tex.errors import RecipeError, did_you_mean

T = TypeVar("T")


def from_mapping(cls: type[T], values: Any, where: str = "") -> T:
    """Build the dataclass `cls` from `values`; `where` is the path of keys that led here."""
    if not isinstance(values, Mapping):
        raise RecipeError(f"{where or 'the recipe'}: expected keys and values, found {values!r}")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            place = f"{where}.{key}" if where else str(key)
            raise RecipeError(f"unknown key '{place}'{did_you_mean(str(key), fields)}")
    made = {}
    for name, field in fields.items():
        place = f"{where}.{name}" if where else name
        if name in values:
            made[name] = _convert(hints[name], values[name], place)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise RecipeError(f"the key '{place}' is missing")
    try:
        return cls(**made)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}" if where else str(error)) from None


def to_mapping(settings: Any) -> dict[str, Any]:
    """The inverse of `from_mapping`, in types that JSON and YAML know."""
    return {field.name: _plain(getattr(settings, field.name)) for field in dataclasses.fields(settings)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (hint,) = [argument for argument in arguments if argument is not type(None)]
        return _convert(hint, value, where)
    if origin is typing.Literal:
        if value not in arguments:
            raise RecipeError(
                f"'{where}' is {value!r}, but must be one of {', '.join(map(repr, arguments))}"
                + did_you_mean(str(value), map(str, arguments))
            )
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise RecipeError(f"'{where}' is {value!r}, but must be a list")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
        if len(value) != len(arguments):
            raise RecipeError(f"'{where}' has {len(value)} values, but needs {len(arguments)}")
        pairs = zip(arguments, value, strict=True)
        return tuple(_convert(argument, item, f"{where}[{i}]") for i, (argument, item) in enumerate(pairs))
    if dataclasses.is_dataclass(hint):
        return from_mapping(hint, value, where)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _convert(typing.Literal[tuple(item.value for item in hint)], value, where) and hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, str):  # YAML reads 1e-3 as a string
        try:
            return float(value)
        except ValueError:
            pass
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise RecipeError(f"'{where}' is {value!r}, but must be {_name(hint)}")
    return value


def _name(hint: Any) -> str:
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(hint, str(hint))
