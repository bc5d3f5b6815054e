"""`opicflow graph` and `opicflow rank`: off-line ranks of the whole graph of a crawl, out of core."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from apache_beam.options.pipeline_options import PipelineOptions

from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange
from opicflow.connectors.files.opening import STDIN, InputRefused, expand, is_compressed
from opicflow.connectors.files.rank_files import read_ranks
from opicflow.connectors.files.rank_writer import RankRows, check_name_of_ranks, write_ranks
from opicflow.pipelines.cli.cluster import worker_command
from opicflow.pipelines.cli.commands.replay import (
    Shower,
    check_output,
    ledger_of,
    printable,
    rules_of_options,
    say_compiling,
)
from opicflow.pipelines.graph.builder import MOST_BUCKETS, BuildPlan, GraphBuilder
from opicflow.pipelines.graph.equations import Floats, RankKind
from opicflow.pipelines.graph.hosts import weights_of_hosts
from opicflow.pipelines.graph.parallel import solve_with_workers
from opicflow.pipelines.graph.solver import (
    AUTHORITIES,
    HUBS,
    Rank,
    RankRequest,
    Settings,
    Vectors,
    memory_bytes,
    solve,
)
from opicflow.pipelines.graph.store import MANIFEST, NO_CATEGORY, StoredGraph
from opicflow.pipelines.ledger import Kind as RowKind
from opicflow.pipelines.ledger import Outcome
from opicflow.pipelines.replay.inputs import known_format
from opicflow.pipelines.replay.runner import Progress, most_first
from opicflow.pipelines.transforms.decode import Portion, close_readers, parts_of, route_rows
from opicflow.pipelines.transforms.rank_graph import rank_with_beam
from opicflow.pipelines.transforms.route import MEDIA_CATEGORIES, Categories, Rules, Seen
from opicflow.schemas.columns import spans

_HOLDER_BYTES = 64 << 20
_BYTES_BETWEEN_CHECKPOINTS = 256 << 20
_ROWS_AT_ONCE = 1 << 16
_PAGES_OF_A_STATE_AT_ONCE = 1 << 17
_MOST_HOST_LINES = 10_000_000
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


# -- graph -------------------------------------------------------------------------------------------------------------


def graph(options: argparse.Namespace) -> int:
    """Build a graph, or tell of one."""
    if options.what == "build":
        options.memory = size_of(options.memory)
        return _build(options)
    stored = StoredGraph(options.graph)
    if options.what == "check":
        return _check(stored, options.quiet)
    told = _told(stored)
    if options.json:
        print(json.dumps(told, indent=2))
        return 0
    for name, value in told.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for word, count in value.items():
                print(f"  {count:14,}  {printable(word)}")
        else:
            print(f"{value:16,}  {name}" if not isinstance(value, float) else f"{value:16.2f}  {name}")
    return 0


def size_of(text: str) -> int:
    """A number of bytes, such as 512MB."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise InputRefused(f"--memory {text[:20]}: no size: write it like 512MB or 4GB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def _build(options: argparse.Namespace) -> int:
    begun = time.perf_counter()
    if bool(options.logs) == (options.state is not None):
        raise InputRefused("graph build: name logs, or a replay's state with --state DIR")
    say_compiling(options.quiet)
    stored, reasons = build_graph(options, options.out)
    seconds = time.perf_counter() - begun
    told = _told(stored)
    if options.json:
        rejects = {"rejects": sum(reasons.values()), "rejects_by_reason": reasons}
        print(json.dumps({**told, **rejects, "seconds": round(seconds, 3)}, indent=2))
        return 0
    _print_built(told, reasons, seconds)
    print(f"written: {options.out}")
    return 0


def _print_built(told: dict[str, Any], reasons: dict[str, int], seconds: float) -> None:
    print(
        f"{told['pages']:,} pages, {told['links']:,} links in {told['slices']:,} "
        f"slice{'s' * (told['slices'] != 1)}, {told['bytes_per_link']:.2f} bytes a link; {seconds:,.1f} s"
    )
    print(
        f"{told['pages_read']:,} pages told their links, {told['dangling']:,} of them have none; dropped: "
        f"{told['links_to_themselves']:,} links of pages to themselves, {told['links_merged']:,} that were there twice"
    )
    for reason, count in most_first(reasons).items():
        print(f"  {count:10,}  rejected: {reason} (opicflow validate shows them)")


def _told(stored: StoredGraph) -> dict[str, Any]:
    manifest = stored.manifest
    counts = np.bincount(stored.page_categories, minlength=NO_CATEGORY + 1)
    names = dict(enumerate(stored.categories))
    by_category = {names.get(number, "not known"): int(counts[number]) for number in np.flatnonzero(counts).tolist()}
    return {
        "pages": stored.pages,
        "links": stored.links,
        "pages_read": int(manifest.get("read", 0)),
        "dangling": int(manifest.get("dangling", 0)),
        "links_to_themselves": int(manifest.get("to_themselves", 0)),
        "links_merged": int(manifest.get("merged", 0)),
        "slices": stored.slices,
        "pages_a_slice": stored.slice_pages,
        "bytes": stored.bytes,
        "bytes_per_link": stored.bytes_of_links / max(stored.links, 1),
        "pages_by_category": by_category,
    }


def _check(stored: StoredGraph, quiet: bool) -> int:
    begun = time.perf_counter()
    shower = Shower(quiet)
    done = 0

    def tell(size: int) -> None:
        nonlocal done
        done += size
        shower.show(Progress(0, None, done, stored.bytes, "B", time.perf_counter() - begun))

    try:
        stored.check(tell)
    finally:
        shower.close()
    print(f"{stored.path}: sound: {stored.pages:,} pages, {stored.links:,} links, every byte as it was written")
    return 0


def build_graph(options: argparse.Namespace, folder: Path) -> tuple[StoredGraph, dict[str, int]]:
    """The graph of logs, or of a state; and the rejects, by reason. A build that was interrupted goes on."""
    if options.state is not None:
        return _build_of_state(options, folder), {}
    said = rules_of_options(options) or Rules()
    rules = Rules(said.urls, said.links, Categories(True, said.categories.patterns))
    files = [(file, known_format(file)) for file in dict.fromkeys(expand(options.logs))]
    sources = [(file, format_) for file, format_ in files if format_ is not None]
    if not sources:
        raise InputRefused(f"{', '.join(file for file, _ in files)[:200]}: empty: there is nothing to build a graph of")
    sizes = [_size(file) for file, _ in sources]
    identity = json.dumps([[[file, size] for (file, _), size in zip(sources, sizes, strict=True)], rules.to_json()])
    known = sum(sizes) if all(sizes) else 0
    builder = GraphBuilder(folder, _plan(options, rules.categories.names, known, identity))
    reader = _LogReader(builder, sources, sizes, rules, Shower(options.quiet))
    try:
        if not builder.is_read:
            reader.read()
        return builder.finish(reader.show_step), reader.reasons
    finally:
        reader.shower.close()


def _plan(options: argparse.Namespace, categories: tuple[str, ...], size_bytes: int, identity: str) -> BuildPlan:
    """As many buckets as make each of them a small part of the memory; many where the size is not known, 0."""
    wanted = 64 * size_bytes // options.memory
    buckets = min(MOST_BUCKETS, max(16, 1 << max(wanted, 1).bit_length())) if size_bytes else 256
    return BuildPlan(
        memory_bytes=options.memory,
        buckets=buckets,
        slice_pages=options.slice_pages,
        ranks_at_once=options.ranks_at_once,
        both_ways=options.both_ways,
        categories=categories,
        identity=xxhash.xxh64_hexdigest(identity.encode()),
    )


def _size(file: str) -> int:
    """How large a file is; one that is compressed counts for what may be in it."""
    try:
        with open(file, "rb") as opened:
            return os.path.getsize(file) * (8 if is_compressed(opened.read(4)) else 1)
    except OSError:
        return 0


class _LogReader:
    """Reads logs into a builder, from where it stands."""

    def __init__(
        self,
        builder: GraphBuilder,
        sources: Sequence[tuple[str, Format]],
        sizes: Sequence[int],
        rules: Rules,
        shower: Shower,
    ) -> None:
        self.builder, self.rules, self.shower = builder, rules, shower
        self.sources, self.sizes = sources, sizes
        position = builder.position or {"file": 0, "at": 0, "events": 0, "reasons": {}}
        self.file, self.at, self.events = position["file"], position["at"], position["events"]
        self.reasons: Counter[str] = Counter(position["reasons"])
        self.begun = time.perf_counter()
        self.done = 0

    def read(self) -> None:
        """Read all that is left."""
        unsaved, seen = 0, Seen()
        total = sum(self.sizes) or None
        for number in range(self.file, len(self.sources)):
            name, format_ = self.sources[number]
            start = self.at if number == self.file else 0
            portion = Portion(0, (FileRange(name, name, format_, start),), 1 << 62, closes=True)
            for part in parts_of(portion, self.rules):
                routed = route_rows(part.decoded, part.urls, name, self.rules, seen)
                self.events += routed.counts.get("events_read", 0)
                self.reasons.update(reject.reason.value for reject in routed.rejects)
                self._add(routed.items, together=format_ is Format.EDGES)
                self.done += part.size_bytes
                unsaved += part.size_bytes
                if unsaved > _BYTES_BETWEEN_CHECKPOINTS and name != STDIN:  # which cannot be read from there again
                    unsaved = 0
                    self._checkpoint(number, part.end)
                seconds = time.perf_counter() - self.begun
                self.shower.show(Progress(self.events, None, self.done, total, "B", seconds))
        close_readers()

    def show_step(self, step: str, done: int, of: int) -> None:
        """Tell of a step of the build."""
        order = ("resolve", "number", "sort", "write")
        at = order.index(step) + done / of
        self.shower.show_words(
            f"{self.events:,} events read; {step} {done + 1:,} of {of:,}",
            int(100 * at),
            100 * len(order),
            time.perf_counter() - self.begun,
        )

    def _checkpoint(self, file: int, at: int) -> None:
        self.builder.checkpoint({"file": file, "at": at, "events": self.events, "reasons": dict(self.reasons)})

    def _add(self, items: Any, together: bool) -> None:
        if not len(items):
            return
        self.builder.add_pages(items.page, items.category, items.url_starts, items.url_bytes)
        tells = (items.kind == RowKind.VISIT) & ((items.links_known != 0) | (items.outcome == Outcome.GONE))
        rows = np.flatnonzero(tells)
        links, starts = spans(items.link_starts, rows)
        self.builder.add_visits(
            items.page[rows], starts, items.link_pages[links], items.link_weights[links], together=together
        )
        if len(items.link_categories):
            told = np.flatnonzero(items.link_categories != NO_CATEGORY)
            nothing = np.zeros(len(told) + 1, np.int64)
            self.builder.add_pages(items.link_pages[told], items.link_categories[told], nothing, np.empty(0, np.uint8))


def _build_of_state(options: argparse.Namespace, folder: Path) -> StoredGraph:
    """The graph of what a ledger remembers."""
    with ledger_of(options.state) as (ledger, rules):
        if not ledger.config.remember_links:
            raise InputRefused(f"{options.state}: its ledger remembers no links: replay with --remember-links")
        names = rules.categories.names if rules.categories.count > 1 else MEDIA_CATEGORIES
        pages = ledger.estimate_all().pages
        plan = _plan(options, names, 30 * len(pages), f"{options.state} {ledger.pages}")
        builder = GraphBuilder(folder, plan)
        for first in range(0, 0 if builder.is_read else len(pages), _PAGES_OF_A_STATE_AT_ONCE):
            some = pages[first : first + _PAGES_OF_A_STATE_AT_ONCE]
            categories = ledger.categories(some)
            if rules.categories.count == 1:
                categories = np.full(len(some), NO_CATEGORY, np.uint8)
            builder.add_pages(some, categories, *ledger.urls(some))
            starts, targets, weights = ledger.remembered(some)
            builder.add_visits(some, starts, targets, weights, together=True)
        return builder.finish()


# -- rank --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A rank that is asked for, as `KIND` or `KIND:OF`: what the virtual page pays is then personal.

    OF is the name of a category; `importance`: the importance that is computed before; or `@FILE`: a file of ranks, a
    column of it as `@FILE#COLUMN`, or the hosts in a text file, one a line, with a weight or without.
    """

    kind: RankKind
    of: str = ""

    @property
    def name(self) -> str:
        """The column that it becomes."""
        words = Path(self.of.partition("#")[0]).name.removesuffix(".gz") if self.of.startswith("@") else self.of
        words = words.removeprefix("@").rsplit(".", 1)[0] if self.of.startswith("@") else words
        of = re.sub(r"\W+", "_", words).strip("_").lower()
        return f"{self.kind}_{of}" if of else self.kind


def asked_ranks(text: str) -> tuple[Asked, ...]:
    """The ranks of a list with commas."""
    found: dict[str, Asked] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        kind, _, of = word.partition(":")
        if kind in (HUBS, AUTHORITIES) and not of:
            found[HUBS] = Asked("hubs")
        elif kind in ("importance", "interest"):
            one = Asked("importance" if kind == "importance" else "interest", of)
            if found.setdefault(one.name, one) != one:
                raise InputRefused(f"--ranks {word[:60]}: it has the name of another one, {one.name}: rename its file")
        else:
            raise InputRefused(
                f"--ranks {word[:60]}: no rank: give importance, interest, hubs, authorities, or such as interest:xml"
            )
    if not found:
        raise InputRefused("--ranks: no rank: give at least importance")
    return tuple(found.values())


def rank(options: argparse.Namespace) -> int:
    """Compute ranks of a graph, or of the graph of logs."""
    begun = time.perf_counter()
    options.memory, options.ranks = size_of(options.memory), asked_ranks(options.ranks)
    if options.out is not None:
        check_name_of_ranks(options.out)
        check_output(options.out, "ranks.csv")
    if options.chaotic and options.workers < 2:
        raise InputRefused("--chaotic: one worker has nobody to wait for: give --workers 2 or more")
    if options.runner is None:
        for name in ("job_server", "worker_command", "beam_option"):
            if getattr(options, name):
                raise InputRefused(f"--{name.replace('_', '-')}: it is for Beam jobs: give --runner too")
    elif options.workers > 1:
        raise InputRefused("--workers: with --runner it is the runner that has workers: leave it away")
    say_compiling(options.quiet)
    with _graph_of(options) as stored:
        ranker = _Ranker(stored, options)
        ranked = ranker.ranks()
        if options.out is not None:
            write_ranks(options.out, [one.name for one in ranked], _rows(stored, ranked))
        ranker.clean()
        seconds = time.perf_counter() - begun
        told = {
            "pages": stored.pages,
            "links": stored.links,
            "ranks": [
                {
                    "name": one.name,
                    "iterations": one.iterations,
                    "residual": one.residual,
                    "error_bound": one.error,
                    "converged": one.converged,
                }
                for one in ranked
            ],
            "seconds": round(seconds, 3),
        }
        if options.json:
            tops = {one.name: _top(stored, one.values, options.top) for one in ranked}
            print(json.dumps({**told, "top": tops}, indent=2))
        else:
            _print_ranks(stored, ranked, options.top, seconds)
            if options.out is not None:
                print(f"written: {options.out}, {stored.pages:,} pages")
    return 0


@contextmanager
def _graph_of(options: argparse.Namespace) -> Iterator[StoredGraph]:
    """The graph that was named, or one that is built of logs for as long as it is needed."""
    folders = [path for path in map(Path, options.logs) if path.is_dir()]
    if folders:
        if len(options.logs) > 1:
            raise InputRefused(f"{folders[0]}: a folder: name one graph, or logs")
        yield StoredGraph(folders[0])
        return
    with tempfile.TemporaryDirectory(prefix="opicflow-graph-", dir=options.work) as folder:
        stored, reasons = build_graph(options, Path(folder) / "graph")
        if reasons and not options.quiet:
            count = sum(reasons.values())
            print(f"{count:,} events were rejected: opicflow validate shows them", file=sys.stderr)
        yield stored


class _Ranker:
    """Computes the ranks that are asked for: as many in one scan as fit into the memory."""

    def __init__(self, stored: StoredGraph, options: argparse.Namespace) -> None:
        self.stored, self.options = stored, options
        self.settings = Settings(
            damping=options.damping,
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            dangling=options.dangling,
            gauss_seidel=options.gauss_seidel,
        )
        self.begun = time.perf_counter()
        self.shower = Shower(options.quiet)
        self.found: dict[str, Rank] = {}
        self.identity = self._identity()
        self.folder = Path(options.work or stored.path) / f"ranks-{self.identity}"

    def ranks(self) -> list[Rank]:
        """All of them, in the order in which they were asked for; authorities behind hubs."""
        asked: list[Asked] = list(self.options.ranks)
        on_others = [one for one in asked if one.of == "importance"]
        if on_others and Asked("importance") not in asked:
            raise InputRefused(f"{on_others[0].kind}:importance: it needs importance: ask for that too")
        for one in asked:
            if one not in on_others and not one.of.startswith("@"):
                self._paid(one)  # what is wrong with it is told before anything is computed
        try:
            for some in ([one for one in asked if one not in on_others], on_others):
                for group in self._groups(some):
                    for rank_ in self._solve(group, self.folder):
                        self.found[rank_.name] = rank_
        finally:
            self.shower.close()
        names = [name for one in asked for name in ((HUBS, AUTHORITIES) if one.kind == "hubs" else (one.name,))]
        return [self.found[name] for name in names]

    def clean(self) -> None:
        """Remove the vectors, once what they hold was written. What is mapped stays readable until it is let go."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _groups(self, asked: Sequence[Asked]) -> Iterator[list[Asked]]:
        """As many as fit into half of the memory at once: the other half is for the links."""
        alone = memory_bytes(self.stored, [RankRequest("one", "importance")])
        at_once = max(1, self.options.memory // 2 // alone)
        if self.options.workers > 1 or self.options.runner is not None:
            at_once = 1
        if alone > self.options.memory:
            raise InputRefused(
                f"{self.stored.path}: a slice of it takes {alone >> 20:,} MB: give more --memory, or build it with less"
            )
        for first in range(0, len(asked), at_once):
            yield list(asked[first : first + at_once])

    def _solve(self, group: Sequence[Asked], folder: Path) -> list[Rank]:
        wanted = [RankRequest(one.name, one.kind, self._paid(one), self._start(one)) for one in group]
        if self.options.runner is not None:
            return [self._solve_with_beam(one, folder) for one in wanted]
        hold = max(0, self.options.memory - memory_bytes(self.stored, wanted) - _HOLDER_BYTES)
        vectors = Vectors(self.stored.pages, folder / str(len(self.found)))
        if self.options.workers > 1 and group[0].kind != "hubs":
            return [
                solve_with_workers(
                    self.stored.path,
                    wanted[0],
                    self.settings,
                    vectors,
                    self.options.workers,
                    self.options.chaotic,
                    hold,
                    self.identity,
                    lambda sweeps, left: self._show(wanted[0].name, sweeps, left),
                )
            ]
        self.stored.hold(hold)

        def after_scan(scan: int, residuals: dict[str, float]) -> None:
            name, left = max(residuals.items(), key=lambda one: one[1])
            self._show(name, scan, left)

        return solve(self.stored, wanted, self.settings, vectors, self.identity, after_scan)

    def _solve_with_beam(self, wanted: RankRequest, folder: Path) -> Rank:
        return rank_with_beam(
            self.stored.path.absolute(),
            wanted,
            self.settings,
            folder.absolute(),
            PipelineOptions(self._beam_options()),
            self.options.iterations_per_job,
            lambda iterations, left: self._show(wanted.name, iterations, left),
        )

    def _beam_options(self) -> list[str]:
        given = self.options
        if not given.job_server:
            return [f"--runner={given.runner}", *given.beam_option]
        command = json.dumps({"command": given.worker_command or worker_command()})
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={given.job_server}",
            "--environment_type=PROCESS",
            f"--environment_config={command}",
            "--job_name=opicflow-rank",
            *given.beam_option,
        ]

    def _show(self, name: str, iterations: float, left: float) -> None:
        """How far it is, on the scale of the logarithm of what is left."""
        if self.options.quiet:
            return
        seconds = time.perf_counter() - self.begun
        done = min(1.0, np.log(max(left, 1e-300)) / np.log(self.settings.tolerance)) if left < 1.0 else 0.0
        self.shower.show_words(
            f"{name}: {iterations:,.0f} iterations, residual {left:.1e}", int(1000 * done), 1000, seconds
        )

    def _identity(self) -> str:
        """What tells this computation from others in the same folder."""
        graph_ = (self.stored.path / MANIFEST).read_bytes()
        how = (self.settings, self.options.ranks, self.options.workers, self.options.chaotic, self.options.start)
        files = [_file_digest(one.of) for one in self.options.ranks if one.of.startswith("@")]
        files += [_file_digest(str(self.options.start))] if self.options.start else []
        return xxhash.xxh64_hexdigest(graph_ + repr((how, files)).encode())

    def _paid(self, asked: Asked) -> Floats | None:
        if not asked.of:
            return None
        if asked.of == "importance":
            return np.array(self.found["importance"].values)
        if asked.of.startswith("@"):
            return self._of_file(asked.of[1:], f"{asked.kind}:{asked.of}")
        if asked.of not in self.stored.categories:
            known = ", ".join(self.stored.categories) or "none"
            raise InputRefused(f"{asked.kind}:{asked.of[:60]}: no such category: the graph has {known[:300]}")
        inside = self.stored.page_categories == self.stored.categories.index(asked.of)
        if not inside.any():
            raise InputRefused(f"{asked.kind}:{asked.of[:60]}: no page of the graph is known to be of this category")
        paid: Floats = inside.astype(np.float64)
        return paid

    def _start(self, asked: Asked) -> Floats | None:
        """Where to begin: the rank of the same name in a file, if it is there."""
        if self.options.start is None or asked.kind == "hubs":
            return None
        return self._of_file(f"{self.options.start}#{asked.name}", "--start")

    def _of_file(self, text: str, what: str) -> Floats:
        """A vector of a file: ranks by page, or hosts."""
        name, _, column = text.partition("#")
        found = np.zeros(self.stored.pages)
        if name.endswith((".txt", ".hosts")):
            weights = _host_weights(name)
            known = weights_of_hosts(self.stored.url_bytes, self.stored.url_ends, weights)
            found[:] = known
        else:
            ranks = read_ranks(name, column or "importance")
            at = np.searchsorted(self.stored.ids, ranks.pages)
            at[at == self.stored.pages] = 0
            here = np.asarray(self.stored.ids)[at] == ranks.pages
            found[at[here]] = ranks.values[here]
        if not found.any():
            raise InputRefused(f"{what[:80]}: none of its pages is in the graph with anything above 0: see to the file")
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


# -- what comes out ----------------------------------------------------------------------------------------------------


def urls_of(stored: StoredGraph, first: int, end: int) -> list[str]:
    """The URLs of a range of pages, as the graph has them; empty where only the id is known."""
    ends = np.asarray(stored.url_ends[first:end])
    begin = int(stored.url_ends[first - 1]) if first else 0
    text = stored.url_bytes[begin : int(ends[-1])].tobytes().decode("utf-8") if len(ends) else ""
    cuts = (ends - begin).tolist()
    return [text[begin:end] for begin, end in zip([0, *cuts[:-1]], cuts, strict=True)]


def _rows(stored: StoredGraph, ranked: Sequence[Rank]) -> Iterator[RankRows]:
    for first in range(0, stored.pages, _ROWS_AT_ONCE):
        end = min(first + _ROWS_AT_ONCE, stored.pages)
        values = [np.ascontiguousarray(one.values[first:end]) for one in ranked]
        yield RankRows(urls_of(stored, first, end), stored.ids[first:end], values)


def _top(stored: StoredGraph, values: Floats, count: int) -> list[dict[str, Any]]:
    best = np.empty(0, np.int64)
    for first in range(0, stored.pages, _ROWS_AT_ONCE):  # never a copy of the whole vector
        some = np.append(best, np.arange(first, min(first + _ROWS_AT_ONCE, stored.pages)))
        best = some[np.lexsort((some, -values[some]))][:count]
    return [
        {
            "url": urls_of(stored, page, page + 1)[0],
            "page": f"{int(stored.ids[page]):016x}",
            "rank": float(values[page]),
        }
        for page in best.tolist()
    ]


def _print_ranks(stored: StoredGraph, ranked: Sequence[Rank], top: int, seconds: float) -> None:
    print(f"{stored.pages:,} pages, {stored.links:,} links, {seconds:,.1f} s")
    for one in ranked:
        bound = "" if one.error is None else f", at most {one.error:.1e} from the true ranks"
        left = "" if one.converged else " - NOT CONVERGED: give more --max-iterations, or a larger --tolerance"
        print(f"\n{one.name}: {one.iterations:,} iterations, residual {one.residual:.1e}{bound}{left}")
        for row in _top(stored, one.values, top):
            print(f"  {row['rank']:.9f}  {printable(row['url'] or row['page'])}")
