"""The output of `opicflow rank`: ranks of pages and of sites, as text, as JSON, and as lists of sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.text import counted, print_lines

if TYPE_CHECKING:
    from opicflow.connectors.files.site_lists import SiteList
    from opicflow.pipelines.ranks.graph.harmonic import HarmonicCentrality
    from opicflow.pipelines.ranks.graph.solver import Rank
    from opicflow.pipelines.ranks.graph.store import StoredGraph
    from opicflow.pipelines.ranks.site_ranks import SiteRankOptions, SiteRanks

_LEAST_SCORE = 10.0
"""Below this score spam mass is meaningless: one link decides it."""


def print_ranks(stored: StoredGraph, ranked: Sequence[Rank | HarmonicCentrality], top: int, seconds: float) -> None:
    """Print the highest pages by each rank."""
    from opicflow.pipelines.ranks.graph_rows import top_pages

    print_lines(f"{counted(stored.pages, 'page')}, {counted(stored.links, 'link')}, {seconds:,.1f} s")
    for one in ranked:
        if one.name == "spam_mass":
            _print_spam_mass(stored, ranked, top)
            continue
        print_lines("", _accuracy_of(one))
        form = "12,.2f" if one.name == "harmonic" else ".9f"
        for row in top_pages(stored, one.values, top):
            print_lines(f"  {row['rank']:{form}}  {row['url'] or row['page']}")


def _print_spam_mass(stored: StoredGraph, ranked: Sequence[Rank | HarmonicCentrality], top: int) -> None:
    """Print the pages with the most spam mass among those that are important enough for it to mean something."""
    import numpy as np

    from opicflow.pipelines.ranks.graph_rows import top_pages

    values = {one.name: np.asarray(one.values) for one in ranked}
    scores = values["importance"] * stored.pages
    matters = scores >= _LEAST_SCORE
    shown = np.where(matters, values["spam_mass"], -np.inf)
    print_lines(
        "",
        f"spam_mass, of {counted(int(matters.sum()), 'page')} with {_LEAST_SCORE:g} times the importance "
        "of an average page:",
    )
    for row in top_pages(stored, shown, min(top, int(matters.sum()))):
        print_lines(f"  {row['rank']:11.3f}  {row['url'] or row['page']}")


def print_sites(
    stored: StoredGraph, how: SiteRankOptions, ranked: SiteRanks, top: Sequence[dict[str, str | float]], seconds: float
) -> None:
    """Print what sites were made of, and the highest."""
    rules, graph = how.rules, ranked.graph
    weight = {0.0: "dropped", 1.0: "kept"}.get(rules.internal, f"each counts {rules.internal:g}")
    print_lines(f"{counted(stored.pages, 'page')}, {counted(stored.links, 'link')}, {seconds:,.1f} s")
    print_lines(
        f"{counted(graph.sites, rules.by)}, {counted(graph.site_links, 'link')} between them, "
        f"made of {counted(int(graph.links_out.sum()), 'link')} of pages; "
        f"{counted(int(graph.internal_links.sum()), 'link')} of pages within a {rules.by}: {weight}"
    )
    if graph.addresses:
        words = "is an IP address" if graph.addresses == 1 else "are IP addresses"
        print_lines(f"{graph.addresses:,} of the {rules.by}s {words}")
    if graph.pages_without_site:
        print_lines(f"left out: {counted(graph.pages_without_site, 'page')} without a known URL, with their links")
    if graph.sites == 1:
        print_lines(f"there is one {rules.by} only: all importance is there")
    print()
    if ranked.rank is not None:
        print_lines(_accuracy_of(ranked.rank))
    if ranked.harmonic is not None:
        print_lines(_accuracy_of(ranked.harmonic, rules.by))
    if top:
        heads = "   importance      score" if ranked.rank is not None else ""
        heads += "       harmonic" if ranked.harmonic is not None else ""
        print_lines(f"{heads}     pages  internal  links in  links out  {rules.by}")
    for row in top:
        ranks = f"  {row['importance']:.9f} {row['score']:10.2f}" if ranked.rank is not None else ""
        ranks += f"{row['harmonic']:15,.2f}" if ranked.harmonic is not None else ""
        counts = f"{row['pages']:9,} {row['internal_links']:9,} {row['links_in']:9,} {row['links_out']:10,}"
        print_lines(f"{ranks} {counts}  {row['site']}")


def _accuracy_of(one: Rank | HarmonicCentrality, noun: str = "page") -> str:
    """Return in words how exact a rank is; of harmonic centrality, also the largest distance."""
    from opicflow.pipelines.ranks.graph.solver import Rank

    if isinstance(one, Rank):
        bound = "" if one.error is None else f", at most {one.error:.1e} from the true ranks"
        left = "" if one.converged else " - NOT CONVERGED: give more --max-iterations, or a larger --tolerance"
        return f"{one.name}: {counted(one.iterations, 'iteration')}, residual {one.residual:.1e}{bound}{left}"
    if not one.registers:
        return f"harmonic: exact; largest distance {one.distance:,}"
    words = f"harmonic: {one.registers:,} registers a {noun}, standard error at most {one.error:.1%}"
    if one.complete:
        return f"{words}; largest distance {one.distance:,}"
    return f"{words}; NOT COMPLETE: only distances up to {one.distance:,} count: give more --max-iterations"


def ranks_as_json(ranked: Sequence[Rank | HarmonicCentrality]) -> dict[str, object]:
    """Return how ranks were computed: `ranks`, and `harmonic` for harmonic centrality."""
    from opicflow.pipelines.ranks.graph.solver import Rank

    found: dict[str, object] = {}
    ranks = [one for one in ranked if isinstance(one, Rank)]
    if ranks:
        found["ranks"] = [
            {
                "name": one.name,
                "iterations": one.iterations,
                "residual": one.residual,
                "error_bound": one.error,
                "converged": one.converged,
            }
            for one in ranks
        ]
    for one in ranked:
        if not isinstance(one, Rank):
            found["harmonic"] = {
                "registers": one.registers,
                "standard_error": one.error,
                "distance": one.distance,
                "complete": one.complete,
            }
    return found


def sites_as_json(stored: StoredGraph, how: SiteRankOptions, ranked: SiteRanks, seconds: float) -> dict[str, object]:
    """Return what sites were made of, and how they were ranked."""
    graph = ranked.graph
    summary: dict[str, object] = {
        "pages": stored.pages,
        "links": stored.links,
        "by": how.rules.by,
        "site_links": how.rules.site_links,
        "internal": how.rules.internal,
        "sites": graph.sites,
        "links_between_sites": graph.site_links,
        "external_links": int(graph.links_out.sum()),
        "internal_links": int(graph.internal_links.sum()),
        "addresses": graph.addresses,
        "pages_without_site": graph.pages_without_site,
    }
    computed = [one for one in (ranked.rank, ranked.harmonic) if one is not None]
    return {**summary, **ranks_as_json(computed), "seconds": round(seconds, 3)}


def list_sites(ranked: SiteRanks, most: int | None) -> SiteList:
    """Return the first sites as a list in the form of others: with the ranks computed, and positions among all."""
    import numpy as np

    from opicflow.connectors.files.site_lists import SiteList

    order = ranked.order[:most]
    names = [ranked.names[site] for site in order.tolist()]
    if ranked.rank is None:
        return SiteList(names, [])  # for a list of names alone
    importance = np.asarray(ranked.rank.values)
    if ranked.harmonic is None:
        return SiteList(names, importance[order].tolist())
    harmonic = ranked.harmonic.values
    return SiteList(
        names,
        importance[order].tolist(),
        ranked.positions(importance)[order].tolist(),
        harmonic[order].tolist(),
        ranked.positions(harmonic)[order].tolist(),
    )
