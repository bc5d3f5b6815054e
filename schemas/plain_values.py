"""Plain values, as JSON has them, become the dataclasses and tuples that declare them: the declaration is the check.

A dataclass is stored as an object, a named tuple as a list. A field without a value has its default.

>>> from dataclasses import dataclass
>>> @dataclass
... class Source:
...     name: str
...     at: Natural = 0
>>> read_plain(list[Source], [{"name": "a", "at": 7}, {"name": "b"}])
[Source(name='a', at=7), Source(name='b', at=0)]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

T = TypeVar("T")
_Read = Callable[[object], object]

_NATURAL = "a whole number from 0 on, of 63 bits"
Natural = Annotated[int, _NATURAL]


def read_plain(kind: type[T], values: object) -> T:
    """Return the value of this kind that these plain values describe. Raises `ValueError` for others."""
    read: Callable[[object], T] = _reader(kind)  # type: ignore[assignment, arg-type]
    return read(values)


@cache
def _reader(hint: object) -> _Read:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (object, Any):
        return lambda value: value
    if _NATURAL in arguments:
        return _natural
    if origin in (Union, UnionType):
        (some,) = (one for one in arguments if one is not NoneType)
        read = _reader(some)
        return lambda value: None if value is None else read(value)
    if origin is Literal:
        return lambda value: _checked(value, value in arguments, hint)
    if origin is dict:
        read = _reader(arguments[1])
        return lambda value: {_reader(str)(name): read(one) for name, one in _items(value)}
    if origin is list or (origin is tuple and arguments[-1] is Ellipsis):
        read = _reader(arguments[0])
        return lambda value: origin(map(read, _list(value)))
    if origin is tuple:
        readers = [*map(_reader, arguments)]
        return lambda value: tuple(one(item) for one, item in zip(readers, _list(value), strict=True))
    if is_typeddict(hint):
        return _object_reader(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _record_reader(hint)
    if isinstance(hint, type) and hasattr(hint, "_fields"):
        readers = [_reader(one) for one in get_type_hints(hint, include_extras=True).values()]
        return lambda value: hint(*(one(item) for one, item in zip(readers, _list(value), strict=True)))
    if hint is float:
        return lambda value: _checked(value, type(value) in (int, float), hint)
    return lambda value: _checked(value, type(value) is (hint or NoneType), hint)


def _record_reader(kind: type) -> _Read:
    hints = get_type_hints(kind, include_extras=True)
    readers = {one.name: _reader(hints[one.name]) for one in fields(kind) if one.init}
    needed = {
        one.name for one in fields(kind) if one.init and one.default is MISSING and one.default_factory is MISSING
    }

    def read(value: object) -> object:
        values = dict(_items(value))
        if not needed <= values.keys() <= readers.keys():
            raise ValueError(f"a {kind.__name__} has other fields")
        return kind(**{name: readers[name](one) for name, one in values.items()})

    return read


def _object_reader(kind: Any) -> _Read:
    readers = {name: _reader(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}

    def read(value: object) -> object:
        values = dict(_items(value))
        if not kind.__required_keys__ <= values.keys() <= readers.keys():
            raise ValueError(f"a {kind.__name__} has other fields")
        return {name: readers[name](one) for name, one in values.items()}

    return read


def _natural(value: object) -> object:
    return _checked(value, type(value) is int and 0 <= value < 1 << 63, _NATURAL)


def _list(value: object) -> list[object] | tuple[object, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{str(value)[:40]!r} is no list")
    return value


def _items(value: object) -> list[tuple[str, object]]:
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:40]!r} is no object")
    return list(value.items())


def _checked(value: object, is_right: bool, hint: object) -> object:
    if not is_right:
        raise ValueError(f"{str(value)[:40]!r} is not {getattr(hint, '__name__', hint)}")
    return value
