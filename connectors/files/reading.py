"""How the records of a log are read: what users may say about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from opicflow.connectors.files.opening import InputRefused
from opicflow.schemas.json_events import FIELD_NAMES


@dataclass(frozen=True)
class Reading:
    """The format of the input, "" = by the signs of the file and of each record; and further names of our own fields.

    `fields` are pairs of a field and a name that it has in the log, which counts before all other names.
    """

    format: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def field_names(self) -> dict[str, tuple[str, ...]]:
        """The names of each field, in the order in which they count."""
        return _names_with(self.fields)


@lru_cache(8)
def _names_with(fields: tuple[tuple[str, str], ...]) -> dict[str, tuple[str, ...]]:
    names = dict(FIELD_NAMES)
    for field, name in reversed(fields):
        names = {one: tuple(other for other in others if other != name) for one, others in names.items()}
        names[field] = (name, *names[field])
    return names


_MOST_FIELDS = 50
ANY = Reading()
"""Everything is recognised by itself."""


def parse_fields(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of texts FIELD=NAME."""
    pairs = []
    if len(given) > _MOST_FIELDS:
        raise InputRefused(f"--field: given {len(given)} times: at most {_MOST_FIELDS}")
    for text in given:
        field, equals, name = text.partition("=")
        if not equals or not name or field not in FIELD_NAMES:
            raise InputRefused(
                f"--field {text[:80]}: give FIELD=NAME, such as url=page_url; fields are {', '.join(FIELD_NAMES)}"
            )
        pairs.append((field, name))
    return tuple(pairs)
