"""Group `graph`: ranks of whole graphs, in memory beside other libraries, and out of core as in the thesis, table 2.1.

Everything here is wall time, because disks are waited for. Out-of-core code runs in a process of its own
that may use no more memory than its budget beside the memory of Python and compiled code, the system's cache of files
included, where this process may set such a limit (control groups, as root); the table shows where it may not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Figure, Scale, check, race, say, versus
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ranks.graph.builder import BuildPlan, GraphBuilder
from opicflow.pipelines.ranks.graph.csr import ORDINARY_LINK_WEIGHT, Graph
from opicflow.pipelines.ranks.graph.harmonic import DEFAULT_LOG2, exact_harmonic, hyperball, in_degrees, relative_error
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.ranks.graph.site_graph import SITE_LINKS, SiteRules, fold
from opicflow.pipelines.ranks.graph.solver import RankRequest, Settings, Vectors, solve
from opicflow.pipelines.ranks.graph.store import StoredGraph
from opicflow.schemas.arrays import Floats

SEED = 1
LINKS = 10
IMPORTANCE, INTEREST = RankRequest("importance", "importance"), RankRequest("interest", "interest")
MODES = {"direct": [IMPORTANCE], "inverse": [INTEREST], "combined": [IMPORTANCE, INTEREST]}
_PAGES_AT_ONCE = 1 << 18
_TOP = Path(__file__).resolve().parent.parent
_GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),  # version 1
    (Path("/sys/fs/cgroup"), "memory.max"),
)


def measure(scale: Scale) -> Iterator[Figure]:
    """In memory against others; out of core by size and memory; by order; harmonic centrality; by host."""
    yield from _in_memory(scale.pick(20_000, 1_000_000), scale.pick(1, 3))
    with tempfile.TemporaryDirectory(prefix="opicflow-bench-") as folder:
        for pages in scale.pick([20_000], [1_000_000, 3_000_000], [1_000_000, 5_000_000, 20_000_000]):
            yield from _out_of_core(pages, Path(folder))
        yield from _orders(scale.pick(20_000, 1_000_000), Path(folder))
        yield from _harmonic(scale.pick(2_000, 200_000, 500_000), Path(folder))
        yield from _by_host(scale.pick(20_000, 1_000_000), Path(folder))


def _in_memory(pages: int, rounds: int) -> Iterator[Figure]:
    """To the same true error, on a web without dangling pages: others give these another meaning."""
    web = power_law_web(pages, SEED)
    true = pagerank(web, tolerance=1e-15, max_iterations=200).values
    for name, baseline in library_solvers(web, most_steps=15, tolerance=0).items():
        say(f"graph: {name}")
        error = float(np.abs(baseline() - true).sum())
        tolerance = next(
            tolerance
            for tolerance in 10.0 ** -np.arange(2, 17)
            if np.abs(_ranks(web, tolerance) - true).sum() <= max(error, 1e-14)
        )

        def ours(number: int, tolerance: float = tolerance) -> float:
            _ranks(web, tolerance)
            return 1.0

        def theirs(number: int, baseline: Any = baseline) -> float:
            baseline()
            return 1.0

        fast, slow = race(rounds, ours, theirs)
        how = f"PageRank of {pages:,} pages, {LINKS} links each, to its true error of {error:.1e}, conversion included"
        yield versus(f"graph.pagerank_vs_{name}", fast, "ranks/s", slow, how)


def library_solvers(
    web: Graph, most_steps: int, tolerance: float, only: str | None = None
) -> dict[str, Callable[[], Floats]]:
    """The PageRank of other installed libraries, on graphs that are ready; none, and a line, without any."""
    try:
        import igraph
        from scipy import sparse
        from sknetwork.ranking import PageRank
    except ImportError as missing:
        say(f"SKIPPED, nothing to compare with: {missing}; pip install scikit-network igraph")
        return {}
    weights = web.weights / ORDINARY_LINK_WEIGHT
    solvers: dict[str, Callable[[], Floats]] = {}
    if only in (None, "scikit_network"):
        links = sparse.csr_matrix((weights, web.targets, web.starts), shape=(web.pages, web.pages))
        solvers["scikit_network"] = lambda: PageRank(n_iter=most_steps, tol=tolerance).fit_predict(links)
    if only in (None, "igraph"):
        other = igraph.Graph(n=web.pages, edges=np.stack((web.sources, web.targets), 1), directed=True)
        weighted = None if (weights == 1).all() else weights.tolist()
        solvers["igraph"] = lambda: np.array(other.pagerank(weights=weighted))
    return solvers


def _ranks(web: Graph, tolerance: float) -> Any:
    return pagerank(web, tolerance=tolerance, gauss_seidel=True).values


def _out_of_core(pages: int, folder: Path) -> Iterator[Figure]:
    """Table 2.1: seconds an iteration, with half and a quarter of the memory that source and destination need."""
    size = f"{pages / 1e6:g}m"
    for part, words in ((2, "half"), (4, "quarter")):
        budget = max(2 * 8 * pages // part, 1 << 20)
        path = folder / f"{size}-{words}"
        say(f"graph: building {pages:,} pages for {budget >> 20} MB")
        begun = time.perf_counter()
        graph = _built(path, pages, budget)
        seconds = time.perf_counter() - begun
        if part == 2:
            how = f"{pages:,} pages, {graph.links:,} links at random"
            yield Figure(f"graph.built_{size}", graph.links / seconds, "links/s", how)
            yield Figure(f"graph.bytes_per_link_{size}", graph.bytes_of_links / graph.links, "bytes", "on disk; " + how)
        found = {mode: _scans_of(path, mode, budget) for mode in MODES}
        apart = found["direct"]["seconds"] + found["inverse"]["seconds"]
        for mode, timed in found.items():
            how = f"{budget >> 20} MB, {words} of the vectors{'' if timed['limited'] else ', NOT ENFORCED here'}; "
            how += f"{graph.slices} slices"
            rate = pages / timed["seconds"]
            if mode == "combined":
                yield versus(f"graph.combined_{size}_{words}", rate, "pages/s", pages / apart, how + "; one by one")
            else:
                yield Figure(
                    f"graph.{mode}_{size}_{words}", rate, "pages/s", how + f": {timed['seconds']:.2f} s a scan"
                )


def _harmonic(pages: int, folder: Path) -> Iterator[Figure]:
    """Registers united in a second, beside the links of a bare scan: links held, scans in which all balls grow."""
    small = _built(folder / "harmonic-small", 2_000, 1 << 20)
    exact = exact_harmonic(small).values
    errors = np.abs(hyperball(small).values / exact - 1)
    check(float(errors.max()) < 4 * relative_error(DEFAULT_LOG2), f"estimates are near: {errors.max():.3f}")
    graph = _built(folder / "harmonic", pages, 64 * pages)
    graph.hold(4 << 30)
    in_degrees(graph)  # the held columns are in memory now
    bare, scans = [], []
    for _ in range(3):
        begun = time.perf_counter()
        check(int(in_degrees(graph).sum()) == graph.links, "a bare scan counts every link")
        bare.append(time.perf_counter() - begun)
        say("graph: harmonic")
        times: list[tuple[float, int]] = []
        hyperball(graph, after_scan=lambda radius, growing: times.append((time.perf_counter(), growing)))  # noqa: B023
        most = max(growing for _, growing in times)
        scans += [there - before for (before, growing), (there, _) in pairwise(times) if growing == most]
    united, read = (graph.links << DEFAULT_LOG2) / min(scans), graph.links / min(bare)
    how = f"{pages:,} pages, {graph.links:,} links, {1 << DEFAULT_LOG2} registers a page: {min(scans):.2f} s a scan; "
    yield versus("graph.harmonic_vs_webgraph_paper", united, "registers/s", read, how + "links/s of a bare scan")


def _built(path: Path, pages: int, budget: int) -> StoredGraph:
    """A graph of links at random, ten a page."""
    builder = GraphBuilder(path, BuildPlan(memory_bytes=max(budget, 16 << 20), buckets=256, slice_pages=budget // 32))
    ids, random = page_ids(pages, SEED), np.random.default_rng(SEED)
    for first in range(0, pages, _PAGES_AT_ONCE):
        some = ids[first : first + _PAGES_AT_ONCE]
        targets = ids[random.integers(0, pages, LINKS * len(some))]
        weights = np.full(len(targets), 1024, np.uint16)
        builder.add_visits(some, np.arange(len(some) + 1) * LINKS, targets, weights, together=False)
    graph = builder.finish()
    check(abs(graph.links / (LINKS * pages) - 1) < 0.01, f"{LINKS} links a page, not {graph.links / pages:.2f}")
    return graph


def _scans_of(path: Path, mode: str, budget: int) -> dict[str, Any]:
    """Scan in a process of its own."""
    say(f"graph: {path.name}, {mode}")
    code = f"from benchmarks.graph import scan; scan({str(path)!r}, {mode!r}, {budget})"
    done = subprocess.run([sys.executable, "-c", code], cwd=_TOP, capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"scans of {path.name} end well: {done.stderr[-500:]}")
    timed: dict[str, Any] = json.loads(done.stdout)
    return timed


def scan(path: str, mode: str, budget: int) -> None:
    """Print the time of a scan, within a limit of memory: the memory in use at the start, and the budget."""
    graph = StoredGraph(Path(path))
    _compile(Path(path))
    group = _limited(budget)
    times: list[float] = []
    with tempfile.TemporaryDirectory(prefix="vectors-", dir=Path(path).parent) as work:
        vectors = Vectors(graph.pages, Path(work))
        timed = lambda scan, residuals: times.append(time.perf_counter())  # noqa: E731
        solve(graph, MODES[mode], Settings(max_iterations=3), vectors, after_scan=timed)
    if group is not None:
        with suppress(OSError):
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))
            group.rmdir()
    print(json.dumps({"seconds": float(np.diff(times).min()), "limited": group is not None}))


def _compile(beside: Path) -> None:
    """Have all kernels there before memory is scarce."""
    with tempfile.TemporaryDirectory(dir=beside.parent) as folder:
        graph = _built(Path(folder) / "g", 1000, 1 << 20)
        solve(graph, MODES["combined"], Settings(max_iterations=1))


def _limited(budget: int) -> Path | None:
    """Put this process into a control group that has so much memory left; None where that is not allowed."""
    with open("/proc/self/status", encoding="ascii") as status:
        there = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) << 10
    for top, limit in _GROUPS:
        group = top / f"opicflow-bench-{os.getpid()}"
        if not (top / "cgroup.procs").exists():
            continue
        try:
            group.mkdir()
            (group / limit).write_text(str(there + budget))
            (group / "cgroup.procs").write_text(str(os.getpid()))
            return group
        except OSError:
            with suppress(OSError):
                group.rmdir()
    return None


def _orders(pages: int, folder: Path) -> Iterator[Figure]:
    """To a residual of 1e-6 over 16 slices: both orders, links held in memory, all from the same start."""
    graph = _built(folder / "orders", pages, 32 * pages // 16)
    settings = {"jacobi": Settings(tolerance=1e-6), "gauss_seidel": Settings(tolerance=1e-6, gauss_seidel=True)}
    found: dict[str, tuple[float, float]] = {}
    for name, how in settings.items():
        say(f"graph: {name}")
        graph.hold(4 << 30)
        solve(graph, [IMPORTANCE], Settings(max_iterations=1))  # the held columns are in memory now
        begun = time.perf_counter()
        (rank,) = solve(graph, [IMPORTANCE], how)
        found[name] = (time.perf_counter() - begun, rank.iterations)
        check(rank.converged, f"{name} converges")
    base = found["jacobi"][0]
    for name, (seconds, iterations) in found.items():
        how = f"{pages:,} pages to a residual of 1e-6: {iterations:g} iterations, {seconds:.2f} s; Jacobi, one process"
        yield versus(f"graph.to_1e-6_{name}", 1 / seconds, "ranks/s", 1 / base, how)


def _by_host(pages: int, folder: Path) -> Iterator[Figure]:
    """Folding to hosts beside a scan that only decodes the links; three of four links are within a host."""
    graph = _built_with_hosts(folder / "hosts", pages)
    seconds = {"scan": _best_seconds(lambda: _scan_links(graph))}
    for site_links in SITE_LINKS:
        say(f"graph: by host, {site_links}")
        rules = SiteRules("host", site_links)
        folded = fold(graph, rules, folder)
        counted = int(folded.internal_links.sum() + folded.links_out.sum())
        check(counted == graph.links == _scan_links(graph), "every link is within a host or between two")
        seconds[site_links] = _best_seconds(lambda rules=rules: fold(graph, rules, folder))
        how = (
            f"{pages:,} pages, {folded.sites:,} hosts, {folded.site_links:,} pairs with links, {graph.slices} slices: "
        )
        how += f"{seconds[site_links]:.2f} s; a bare scan of the links {seconds['scan']:.3f} s"
        name = "by_host_vs_page_scan" if site_links == "links" else "by_host_counting_pages_vs_page_scan"
        yield versus(f"graph.{name}", graph.links / seconds[site_links], "links/s", graph.links / seconds["scan"], how)


def _scan_links(graph: StoredGraph) -> int:
    return sum(len(block.links.targets) for slice_ in range(graph.slices) for block in graph.blocks(slice_))


def _best_seconds(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(4):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def _built_with_hosts(path: Path, pages: int) -> StoredGraph:
    """A graph of pages with URLs: hosts of very different sizes, the large ones are linked to more."""
    random = np.random.default_rng(SEED)
    host_of = np.sort((random.random(pages) ** 3 * pages / 50).astype(np.int64))
    firsts, ends = np.searchsorted(host_of, host_of), np.searchsorted(host_of, host_of, side="right")
    ids = page_ids(pages, SEED)
    builder = GraphBuilder(path, BuildPlan(memory_bytes=256 << 20, slice_pages=-(-pages // 4)))
    for first in range(0, pages, _PAGES_AT_ONCE):
        some = slice(first, min(first + _PAGES_AT_ONCE, pages))
        rows = np.repeat(np.arange(some.start, some.stop), LINKS)
        own = firsts[rows] + (random.random(len(rows)) * (ends[rows] - firsts[rows])).astype(np.int64)
        other = (random.random(len(rows)) ** 2 * pages).astype(np.int64)
        targets = np.where(random.random(len(rows)) < 0.75, own, other)
        pairs = zip(host_of[some].tolist(), range(some.start, some.stop), strict=True)
        urls = [b"https://www.site-%d.example/page/%d" % pair for pair in pairs]
        starts = np.cumsum([0, *map(len, urls)])
        builder.add_pages(ids[some], np.zeros(len(urls), np.uint8), starts, np.frombuffer(b"".join(urls), np.uint8))
        weights = np.full(len(targets), ORDINARY_LINK_WEIGHT, np.uint16)
        builder.add_visits(ids[some], np.arange(len(urls) + 1) * LINKS, ids[targets], weights, together=False)
    return builder.finish()
