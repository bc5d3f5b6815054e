"""Group `community`: selecting pages of a frontier, beside the paper's algorithm 3 in plain Python; a whole run."""

from __future__ import annotations

import json
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Figure, Scale, check, race, say, versus
from opicflow.pipelines.lab.web.webs import hosted_web
from opicflow.pipelines.ranks.crawled_web import crawled_in_logs
from opicflow.pipelines.ranks.graph.community import (
    Expansion,
    LocalFrontier,
    RecordedWeb,
    find_global_ranks,
    influence,
    ranks_of,
)
from opicflow.pipelines.ranks.graph.comparison import l1
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.stages.rules import Rules

SEED = 1
DAMPING = 0.85


def measure(scale: Scale) -> Iterator[Figure]:
    """A round by size, against plain Python, all rounds of a domain, and what a log takes in memory."""
    yield from _by_size(scale.pick((1_000, 2_000), (10_000, 100_000, 1_000_000)))
    yield from _whole_run(scale.pick(1_000, 100_000))
    yield from _memory(scale.pick(2_000, 50_000))


def _by_size(sizes: tuple[int, ...]) -> Iterator[Figure]:
    """A domain of all hosts in the first half of a web."""
    first: dict[str, float] = {}
    for size in sizes:
        say(f"community: {size:,} local pages")
        graph = _without_dead_ends(hosted_web(2 * size, SEED, mean_links=10).graph)
        expansion = Expansion()
        expansion.add(RecordedWeb.of_graph(graph).fetch(np.arange(size, dtype=np.uint64)), np.ones(size, np.bool_))
        frontier = expansion.frontier()
        frontier.linkers  # noqa: B018 - made once for all selections, and timed with the frontier
        f = ranks_of(frontier).values
        works = {
            "frontier": lambda number, expansion=expansion, size=size: size * bool(expansion.frontier().linkers),
            "exact": lambda number, frontier=frontier, f=f, size=size: size * bool(len(influence(frontier, f))),
            "table": lambda number, frontier=frontier, f=f, size=size: (
                size * bool(len(influence(frontier, f, norm_steps=100)))
            ),
        }
        rates = dict(zip(works, race(3, *works.values()), strict=True))
        first = first or rates
        for name, rate in rates.items():
            how = {
                "frontier": "F and F_out from the pages read",
                "exact": "SC-Select, exact norms",
                "table": "SC-Select, norms of a table of 100",
            }[name]
            yield versus(
                f"community.{name}_of_{size}", rate, "local pages/s", first[name], f"{how}, a round; first size"
            )
        if size == sizes[0]:
            begun = time.process_time()
            plain = plain_scores(frontier, f)
            seconds = time.process_time() - begun
            check(bool(np.allclose(plain, influence(frontier, f), atol=1e-13)), "both have the same scores")
            yield versus(
                f"community.exact_vs_plain_{size}",
                rates["exact"],
                "local pages/s",
                size / seconds,
                "beside algorithm 3 in plain Python, exact norms by numpy",
            )


def _whole_run(size: int) -> Iterator[Figure]:
    """50 rounds, 2n pages."""
    say(f"community: 50 rounds for {size:,} local pages")
    web = hosted_web(10 * size, SEED, mean_links=6, dangling=0.1).graph
    exact = pagerank(web, tolerance=1e-10).values[:size]
    recorded, expansion = RecordedWeb.of_graph(web), Expansion()
    expansion.add(recorded.fetch(np.arange(size, dtype=np.uint64)), np.ones(size, np.bool_))
    begun = time.perf_counter()
    distances = []
    for step in find_global_ranks(
        expansion, recorded, lambda frontier, ranks, round_: influence(frontier, ranks), 50, 2 * size // 50
    ):
        distances.append(l1(step.estimate.values, exact / exact.sum()))
    seconds = time.perf_counter() - begun
    check(expansion.pages == 3 * size, "2n pages were read")
    yield Figure("community.run_seconds", seconds, "s", f"50 rounds, n = {size:,}, 2n pages read, by the wall")
    yield versus("community.run_l1", 1 / distances[-1], "1/L1", 1 / distances[0], "after the run; before it")


def _memory(visits: int) -> Iterator[Figure]:
    """The most that reading a log takes."""
    web = hosted_web(visits, SEED, mean_links=10).graph
    with tempfile.TemporaryDirectory(prefix="opicflow-bench-") as folder:
        log = Path(folder) / "log.jsonl"
        with log.open("w") as file:
            for page in range(visits):
                links = web.targets[web.starts[page] : web.starts[page + 1]].tolist()
                urls = [f"https://host{target % 97}.example/page/{target}" for target in links]
                file.write(json.dumps({"url": f"https://host{page % 97}.example/page/{page}", "links": urls}) + "\n")
        crawled_in_logs([str(log)], Rules(), lambda events, seconds: None)
        tracemalloc.start()
        begun = time.process_time()
        crawled = crawled_in_logs([str(log)], Rules(), lambda events, seconds: None)
        _, most = tracemalloc.get_traced_memory()
        seconds = time.process_time() - begun
        tracemalloc.stop()
    check(len(crawled.fetched.link_pages) == web.links, "all links are there")
    yield Figure("community.log_bytes_a_link", most / web.links, "bytes", "at most while a log is read, URLs and all")
    yield Figure("community.log_events", visits / seconds, "events/s", "read from JSON lines, memory being traced")


def _without_dead_ends(graph: Graph) -> Graph:
    """A web whose first half has no page without links within that half: plain algorithm 3 has none."""
    half = graph.pages // 2
    ring = np.arange(half)
    return Graph.from_links(graph.pages, np.append(graph.sources, ring), np.append(graph.targets, (ring + 1) % half))


def plain_scores(frontier: LocalFrontier, f: np.ndarray) -> list[float]:
    """Algorithm 3 for webs without pages that have no links within F, by dicts and loops; norms are exact."""
    inside, count = frontier.links, frontier.links.pages
    o = inside.out_weights.tolist()
    to = [inside.targets[inside.starts[k] : inside.starts[k + 1]].tolist() for k in range(count)]
    weight = [inside.weights[inside.starts[k] : inside.starts[k + 1]].tolist() for k in range(count)]
    ins = np.bincount(inside.targets, inside.weights, minlength=count)
    y = -(1 - DAMPING) / (count * (count + 1))
    z = (DAMPING * ins / ins.sum() + (1 - DAMPING) / (count + 1)) / (1 - (1 - DAMPING) / (count + 1))
    local = np.flatnonzero(frontier.is_local)
    starts, sources, weights = frontier.linkers
    scores = []
    for page in range(len(frontier.pages)):
        links = range(starts[page], starts[page + 1])
        g = (1 - DAMPING) / (count + 1)
        x: dict[int, float] = {}
        for link in links:
            k, u = int(sources[link]), int(weights[link])
            g += DAMPING * f[k] * u / (o[k] + u)
            for target, w in zip(to[k], weight[k], strict=True):
                x[target] = x.get(target, 0.0) - DAMPING * f[k] * w * u / (o[k] * (o[k] + u))
        score = float(np.abs(y + g * z[local]).sum())
        for target, value in x.items():
            if frontier.is_local[target]:
                score += abs(value + y + g * z[target]) - abs(y + g * z[target])
        scores.append(score)
    return scores
