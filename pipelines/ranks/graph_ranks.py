"""Ranks of the pages of a stored graph, computed out of core."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.rank_reader import read_ranks
from opicflow.pipelines.ranks.graph.hosts import weights_of_hosts
from opicflow.pipelines.ranks.graph.solver import (
    AUTHORITIES,
    EIGENVECTORS,
    HUBS,
    Rank,
    RankKind,
    RankRequest,
    Settings,
    Vectors,
    memory_bytes,
    solve,
)
from opicflow.pipelines.ranks.graph.store import MANIFEST, StoredGraph
from opicflow.pipelines.ranks.graph.trust import GOOD_SHARE, spam_mass
from opicflow.schemas.arrays import Floats

TRUST, DISTRUST, SPAM_MASS = "trust", "distrust", "spam-mass"
_LINEAR: dict[str, RankKind] = {
    "importance": "importance",
    "interest": "interest",
    "interest-mean": "interest-mean",
    "interest-sum": "interest-sum",
}
_HOLDER_BYTES = 64 << 20
_MOST_HOST_LINES = 10_000_000

Progress = Callable[[str, float, float], None]
"""Called with the name of a rank, its iterations so far, and its residual."""


@dataclass(frozen=True)
class RankSpec:
    """A rank to compute, written `KIND` or `KIND:OF`; with OF, the virtual page pays only some pages.

    OF is the name of a category; `importance`: the importance that is computed first; `importance:CATEGORY`: the same,
    but of a category alone; or `@FILE`: a file of ranks, a column as `@FILE#COLUMN`, or the hosts in a text file, one a
    line, with a weight or without.
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
        if not self.of:
            return self.kind.replace("-", "_")
        words = Path(self.of.partition("#")[0]).name.removesuffix(".gz") if self.of.startswith("@") else self.of
        words = words.removeprefix("@").rsplit(".", 1)[0] if self.of.startswith("@") else words
        of = re.sub(r"\W+", "_", words).strip("_").lower()
        kind = self.kind.replace("-", "_")
        return f"{kind}_{of}" if of else kind

    @property
    def is_by_importance(self) -> bool:
        """Whether importance is computed first."""
        return self.of.partition(":")[0] == "importance"


def parse_ranks(text: str) -> tuple[RankSpec, ...]:
    """Return the ranks of a list with commas."""
    found: dict[str, RankSpec] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        kind, _, of = word.partition(":")
        if kind in (HUBS, AUTHORITIES) and not of:
            found[HUBS] = RankSpec("hubs")
        elif word in EIGENVECTORS:
            one = RankSpec("eigenvector" if word == "eigenvector" else "eigenvector-loops")
            found[one.name] = one
        elif kind in _LINEAR:
            one = RankSpec(_LINEAR[kind], of)
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
                f"--ranks {word[:60]}: no such rank: give importance (PageRank), interest, interest-mean, "
                "interest-sum, hubs, authorities, eigenvector, eigenvector-loops, trust:@FILE, distrust:@FILE, "
                "spam-mass, or such as interest:xml; harmonic is --measure harmonic"
            )
    if not found:
        raise InputRefused("--ranks: no rank: give at least importance")
    if SPAM_MASS in found and not {"importance", TRUST} <= set(found):
        raise InputRefused("--ranks spam-mass: it compares two ranks: add importance and trust:@FILE")
    return tuple(found.values())


@dataclass(frozen=True)
class RankOptions:
    """Which ranks are computed, and how."""

    ranks: tuple[RankSpec, ...] = (RankSpec("importance"),)
    settings: Settings = field(default_factory=Settings)
    memory_bytes: int = 512 << 20
    start: Path | None = None
    """A file of ranks to begin with."""
    work: Path | None = None
    """The folder of vectors, from which a killed computation continues; None = the folder of the graph."""
    good_share: float = GOOD_SHARE
    """The share of all pages that the pages of trust stand for."""


class Ranker:
    """Computes ranks of a stored graph: as many in one scan as fit into the memory."""

    def __init__(self, stored: StoredGraph, options: RankOptions, progress: Progress) -> None:
        self.stored, self.options = stored, options
        self.settings = options.settings
        self.progress = progress
        self.found: dict[str, Rank] = {}
        self.identity = self._identity()
        self.folder = Path(options.work or stored.path) / f"ranks-{self.identity}"

    def ranks(self) -> list[Rank]:
        """Compute all ranks. Returns them in the order of the request; authorities after hubs."""
        requested = [one for one in self.options.ranks if one.called != "spam_mass"]
        on_others = [one for one in requested if one.is_by_importance]
        if on_others and RankSpec("importance") not in requested:
            raise InputRefused(f"{on_others[0].kind}:importance: it needs importance: add importance to --ranks")
        for one in requested:  # mistakes are refused before anything is computed
            category = one.of.partition(":")[2] if one.is_by_importance else one.of
            if category and not one.of.startswith("@"):
                self._inside(one, category)
        for some in ([one for one in requested if one not in on_others], on_others):
            for group in self._groups(some):
                for rank in self._solve(group, self.folder):
                    self.found[rank.name] = rank
        if len(requested) < len(self.options.ranks):
            self.found["spam_mass"] = self._spam_mass()
        names = [
            name for one in self.options.ranks for name in ((HUBS, AUTHORITIES) if one.kind == "hubs" else (one.name,))
        ]
        return [self.found[name] for name in names]

    def _spam_mass(self) -> Rank:
        importance, trust = self.found["importance"], self.found[TRUST]
        values = spam_mass(np.asarray(importance.values), np.asarray(trust.values), self.options.good_share)
        converged = importance.converged and trust.converged
        return Rank("spam_mass", values, max(importance.residual, trust.residual), None, 0, converged)

    def clean(self) -> None:
        """Remove the vectors, after they were written. Those that are mapped stay readable until they are released."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _groups(self, requested: Sequence[RankSpec]) -> Iterator[list[RankSpec]]:
        """Yield groups of ranks that fit into half of the memory: the other half is for the links."""
        alone = memory_bytes(self.stored, [RankRequest("one", "importance")])
        at_once = max(1, self.options.memory_bytes // 2 // alone)
        if alone > self.options.memory_bytes:
            raise InputRefused(
                f"{self.stored.path}: a slice takes {alone >> 20:,} MB: give more --memory, or build it with less"
            )
        for first in range(0, len(requested), at_once):
            yield list(requested[first : first + at_once])

    def _solve(self, group: Sequence[RankSpec], folder: Path) -> list[Rank]:
        wanted = [RankRequest(one.name, one.kind, self._paid(one), self._start(one)) for one in group]
        hold = max(0, self.options.memory_bytes - memory_bytes(self.stored, wanted) - _HOLDER_BYTES)
        vectors = Vectors(self.stored.pages, folder / str(len(self.found)))
        self.stored.hold(hold)

        def after_scan(scan: int, residuals: dict[str, float]) -> None:
            name, left = max(residuals.items(), key=lambda one: one[1])
            self.progress(name, scan, left)

        return solve(self.stored, wanted, self.settings, vectors, self.identity, after_scan)

    def _identity(self) -> str:
        """Return a digest that differs for every other computation in the same folder."""
        graph_ = (self.stored.path / MANIFEST).read_bytes()
        how = (self.settings, self.options.ranks, self.options.start)
        files = [_file_digest(one.of) for one in self.options.ranks if one.of.startswith("@")]
        files += [_file_digest(str(self.options.start))] if self.options.start else []
        return xxhash.xxh64_hexdigest(graph_ + repr((how, files)).encode())

    def _votes(self) -> Floats | None:
        """Return the teleport of importance: a hop has no vote, as in a ledger. None where all or none are hops."""
        votes = np.asarray(self.stored.hops) == 0
        return None if votes.all() or not votes.any() else votes.astype(np.float64)

    def _paid(self, requested: RankSpec) -> Floats | None:
        if not requested.of:
            return self._votes() if requested.kind == "importance" else None
        if requested.of.startswith("@"):
            return self._of_file(requested.of[1:], f"{requested.kind}:{requested.of}")
        if not requested.is_by_importance:
            return self._inside(requested, requested.of)
        importance, category = np.array(self.found["importance"].values), requested.of.partition(":")[2]
        return importance * self._inside(requested, category) if category else importance

    def _inside(self, requested: RankSpec, category: str) -> Floats:
        """Return 1 for each page of a category, 0 for the others."""
        if category not in self.stored.categories:
            known = ", ".join(self.stored.categories) or "none"
            raise InputRefused(f"{requested.kind}:{requested.of[:60]}: no such category: the graph has {known[:300]}")
        inside = self.stored.page_categories == self.stored.categories.index(category)
        if not inside.any():
            raise InputRefused(f"{requested.kind}:{requested.of[:60]}: no page of the graph is in this category")
        paid: Floats = inside.astype(np.float64)
        return paid

    def _start(self, requested: RankSpec) -> Floats | None:
        """Return the start vector: the rank of the same name in a file."""
        if self.options.start is None or requested.kind == "hubs":
            return None
        return self._of_file(f"{self.options.start}#{requested.name}", "--start")

    def _of_file(self, text: str, what: str) -> Floats:
        """Return the vector of a file: ranks by page, or weights of hosts."""
        name, _, column = text.partition("#")
        found = np.zeros(self.stored.pages)
        if name.endswith((".txt", ".hosts")):
            weights = _host_weights(name)
            known = weights_of_hosts(self.stored.url_bytes, self.stored.url_ends, weights)
            found[:] = known
        else:
            ranks = read_ranks(name, column or "importance")
            at = self.stored.numbers_of(ranks.pages)
            found[at[at >= 0]] = ranks.values[at >= 0]
        if not found.any():
            raise InputRefused(f"{what[:80]}: none of its pages is in the graph with a value above 0: check the file")
        return found


def _host_weights(name: str) -> dict[bytes, float]:
    weights: dict[bytes, float] = {}
    try:
        lines = Path(name).read_bytes().splitlines()
    except OSError as problem:
        raise InputRefused(f"{name}: cannot be read ({problem.strerror}): name another file") from None
    for number, line in enumerate(lines[:_MOST_HOST_LINES], 1):
        words = line.split(b"#")[0].split()
        if not words:
            continue
        try:
            weight = float(words[1]) if len(words) > 1 else 1.0
        except ValueError:
            weight = -1.0
        if len(words) > 2 or not (np.isfinite(weight) and weight >= 0.0):
            raise InputRefused(f"{name}, line {number}: no host with a weight from 0: write it like example.org 2")
        weights[words[0].lower()] = weight
    if not weights:
        raise InputRefused(f"{name}: no host in it: name one a line")
    return weights


def _file_digest(name: str) -> str:
    name = name.removeprefix("@").partition("#")[0]
    try:
        digest = xxhash.xxh64()
        with open(name, "rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
    except OSError as problem:
        raise InputRefused(f"{name}: cannot be read ({problem.strerror}): name another file") from None
    return digest.hexdigest()
