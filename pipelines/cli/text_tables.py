"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.text import counted, print_lines

if TYPE_CHECKING:
    from opicflow.pipelines.results.record_columns import Pages
    from opicflow.pipelines.stages.publish import DiscoveryFigures, PlanFigures


def print_plan(plan: PlanFigures) -> None:
    """Print the refresh plan of a summary, in two lines, and a third one about unread pages that are ordered."""
    print_lines(
        f"refresh: {plan['policy']}, {plan['bandwidth_per_day']:,.0f} fetches a day: {plan['refresh_per_day']:,.0f} "
        f"for {counted(plan['pages_refreshed'], 'page')} known, {plan['discovery_per_day']:,.0f} for unread ones; "
        f"{plan['freshness']:.0%} fresh, by importance{_how_sure(plan)}"
    )
    print_lines(
        f"orders:  {plan['orders']:,} for the next {plan['cycle_hours']:g} hours ({plan['orders_refresh']:,} refresh, "
        f"{plan['orders_discovery']:,} discovery)"
    )
    if "discovery" in plan and plan["orders_discovery"]:
        print_lines(f"unread:  {_discovery(plan['discovery'], plan['orders_discovery'])}")


def _how_sure(plan: PlanFigures) -> str:
    """Return the range of the freshness in words."""
    low, high = plan["freshness_low"], plan["freshness_high"]
    return f" ({low:.0%} to {high:.0%})"


def _discovery(learnt: DiscoveryFigures, orders: int) -> str:
    """Return how unread pages were chosen, in words."""
    exploring = learnt["orders_exploring"]
    text = f"{orders - exploring:,} by worth, {exploring:,} to explore (at most {learnt['exploring_share']:.0%}"
    explored, others = learnt["credit_explored"], learnt["credit_others"]
    if explored is not None and others:
        times = explored / others
        text += f": explored pages have brought {times:.2g} times as much as others"
    return text + ")"


def first_rows(pages: Iterable[Pages], most: int) -> Iterator[Pages]:
    """Yield the first rows of parts, and read no more parts than they need."""
    import numpy as np

    for part in pages:
        if most <= 0:
            return
        yield part.rows(np.arange(min(most, len(part.texts))))
        most -= len(part.texts)


def print_pages(parts: Iterable[Pages]) -> None:
    """Print pages with their importance as a table."""
    print("  importance      score  visits  page")
    for pages in parts:
        c = pages.columns
        for row, url in enumerate(pages.urls):
            mark = "" if c["measured"][row] else "  (history not measured yet)"
            print_lines(f"  {c['importance'][row]:10.6f} {c['score'][row]:10.2f} {c['visits'][row]:7}  {url}{mark}")
