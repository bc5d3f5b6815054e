"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def print_plan(plan: dict[str, Any]) -> None:
    """Print the refresh plan of a summary, in two lines."""
    print(
        f"refresh: {plan['policy']}, {plan['bandwidth_per_day']:,.0f} fetches a day: {plan['refresh_per_day']:,.0f} "
        f"for {plan['pages_refreshed']:,} pages known, {plan['discovery_per_day']:,.0f} for unread ones; "
        f"{plan['freshness']:.0%} fresh, by importance"
    )
    print(
        f"orders:  {plan['orders']:,} for the next {plan['cycle_hours']:g} hours ({plan['orders_refresh']:,} refresh, "
        f"{plan['orders_discovery']:,} discovery)"
    )


def print_pages(parts: Sequence[bytes], most: int) -> None:
    """Print the first pages of packed estimates as a table."""
    from opicflow.pipelines.results.files import pages_of

    print("  importance      score  visits  page")
    for part in parts:
        pages = pages_of(part)
        c = pages.columns
        for row, url in enumerate(pages.urls[:most]):
            mark = "" if c["measured"][row] else "  (history not measured yet)"
            print(f"  {c['importance'][row]:10.6f} {c['score'][row]:10.2f} {c['visits'][row]:7}  {url}{mark}")
        most -= len(pages.urls)
        if most <= 0:
            return
