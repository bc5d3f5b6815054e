"""Which ranks of a graph are requested: the words of `--ranks`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.ranks.graph.solver import AUTHORITIES, HUBS, RankKind

TRUST, DISTRUST, SPAM_MASS = "trust", "distrust", "spam-mass"


@dataclass(frozen=True)
class RankSpec:
    """A rank to compute, written `KIND` or `KIND:OF`; with OF, the virtual page pays only some pages.

    OF is the name of a category; `importance`: the importance that is computed first; or `@FILE`: a file of ranks, a
    column as `@FILE#COLUMN`, or the hosts in a text file, one a line, with a weight or without.
    """

    kind: RankKind
    of: str = ""
    called: str = ""
    """The name of its column, if it does not follow from the others."""

    @property
    def name(self) -> str:
        """The name of its column."""
        if self.called:
            return self.called
        words = Path(self.of.partition("#")[0]).name.removesuffix(".gz") if self.of.startswith("@") else self.of
        words = words.removeprefix("@").rsplit(".", 1)[0] if self.of.startswith("@") else words
        of = re.sub(r"\W+", "_", words).strip("_").lower()
        return f"{self.kind}_{of}" if of else self.kind


def parse_ranks(text: str) -> tuple[RankSpec, ...]:
    """Return the ranks of a list with commas."""
    found: dict[str, RankSpec] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        kind, _, of = word.partition(":")
        if kind in (HUBS, AUTHORITIES) and not of:
            found[HUBS] = RankSpec("hubs")
        elif kind in ("importance", "interest"):
            one = RankSpec("importance" if kind == "importance" else "interest", of)
            if found.setdefault(one.name, one) != one:
                raise InputRefused(f"--ranks {word[:60]}: it has the name of another one, {one.name}: rename its file")
        elif kind in (TRUST, DISTRUST):
            if not of.startswith("@"):
                raise InputRefused(f"--ranks {word[:60]}: of which pages? Give a file, such as {kind}:@hosts.txt")
            one = RankSpec("importance" if kind == TRUST else "interest", of, kind)
            if found.setdefault(kind, one) != one:
                raise InputRefused(f"--ranks {word[:60]}: {kind} is there already: give one file")
        elif word == SPAM_MASS:
            found[SPAM_MASS] = RankSpec("importance", called="spam_mass")
        else:
            raise InputRefused(
                f"--ranks {word[:60]}: no such rank: give importance (PageRank), interest, hubs, authorities, "
                "trust:@FILE, distrust:@FILE, spam-mass, or such as interest:xml; harmonic is --measure harmonic"
            )
    if not found:
        raise InputRefused("--ranks: no rank: give at least importance")
    if SPAM_MASS in found and not {"importance", TRUST} <= set(found):
        raise InputRefused("--ranks spam-mass: it compares two ranks: add importance and trust:@FILE")
    return tuple(found.values())
