"""`opicflow show --why`: who pays a page, how it was found, what its change rate rests on, why it is ordered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from opicflow.pipelines.ledger import Certified, LedgerConfig, Outcome, RefreshConfig
from opicflow.pipelines.replay.final_plan import importance_for_plans
from opicflow.pipelines.results.reasons import Reasons, reasons_of
from opicflow.schemas.records import Policy
from support.commands import output_of
from support.guides import LOG
from tests.support.written_crawls import DAY, T0, Crawl, with_refresh


def crawl_of(**options: object) -> Crawl:
    refresh = RefreshConfig(bandwidth_per_day=2.0, **options)  # type: ignore[arg-type]
    return Crawl(LedgerConfig(history=Certified(), refresh=refresh))


def reasons(crawl: Crawl, page: int) -> Reasons:
    importance = importance_for_plans(crawl.ledger)
    return reasons_of(crawl.ledger, crawl.id(page), crawl.ledger.preview(importance=importance), importance)


def small_crawl() -> Crawl:
    """Page 0 leads to 1, 2 and 3; 1 to 3 and 4; 4 to 5. All but 5 are read."""
    crawl = crawl_of()
    crawl.tick(T0)
    for page, links in ((0, (1, 2, 3)), (1, (3, 4)), (4, (5, 0)), (2, ()), (3, (0,))):
        crawl.visit(page, T0 + page, links=links)
    crawl.see(range(6))
    crawl.tick(T0 + DAY)
    return crawl


def test_all_payers_are_named_with_the_part_that_follows_from_the_ranks() -> None:
    crawl = small_crawl()
    found = reasons(crawl, 3)
    settled = crawl.ledger.settle()
    rank = dict(zip(settled.pages.tolist(), settled.importance.tolist(), strict=True))
    expected = {
        crawl.name(0): 0.85 * rank[crawl.id(0)] / 3 / rank[crawl.id(3)],
        crawl.name(1): 0.85 * rank[crawl.id(1)] / 2 / rank[crawl.id(3)],
    }
    assert {payer.name: payer.part for payer in found.payers} == pytest.approx(expected)
    assert [payer.part for payer in found.payers] == sorted((payer.part for payer in found.payers), reverse=True)
    assert {site.name: site.pages for site in found.sites} == {"host0.example": 1, "host1.example": 1}


def test_parts_are_those_that_the_pages_of_all_pages_have() -> None:
    crawl = Crawl(LedgerConfig(history=Certified()))
    crawl.read(range(50), T0)
    settled = crawl.ledger.settle()
    payers, parts = crawl.ledger.payers(settled.pages, settled.importance, 3).of(settled.pages)
    for page, best, of_best in zip(settled.pages.tolist(), payers.tolist(), parts.tolist(), strict=True):
        found = crawl.ledger.payers_of(page, settled.importance)
        assert [part for _, part in found[:3]] == pytest.approx([part for part in of_best if part > 0])
        assert {payer for payer, _ in found} >= {payer for payer, part in zip(best, of_best, strict=True) if part > 0}
        assert sum(part for _, part in found) <= 1


def test_the_path_leads_from_a_seed_to_the_page() -> None:
    crawl = small_crawl()
    assert reasons(crawl, 5).path == [crawl.name(page) for page in (0, 1, 4, 5)]
    assert reasons(crawl, 0).path == [crawl.name(0)] and reasons(crawl, 0).is_path_whole


def test_long_paths_are_cut() -> None:
    crawl = crawl_of()
    crawl.tick(T0)
    for page in range(30):
        crawl.visit(page, T0, links=(page + 1,))
    found = reasons(crawl, 30)
    assert len(found.path) == 21 and not found.is_path_whole


def test_changes_that_were_seen_are_counted() -> None:
    crawl = crawl_of()
    crawl.tick(T0)
    for day, digest in enumerate((1, 1, 2, 3, 1)):
        crawl.visit(0, T0 + day * DAY, digest=digest)
    seen = reasons(crawl, 0).changes
    assert (seen.intervals, seen.changed, seen.returned) == (4, 3, 1)
    for day in range(5, 25):
        crawl.visit(0, T0 + day * DAY, digest=100 + day)
    seen = reasons(crawl, 0).changes
    assert seen.intervals == seen.changed > 8


def test_it_says_why_a_page_is_ordered_or_not() -> None:
    crawl = crawl_of(discovery_share=0.5)
    crawl.tick(T0)
    crawl.visit(0, T0, links=range(1, 8))
    crawl.see(range(8))
    crawl.visit(1, T0, outcome=Outcome.FAILED)
    crawl.publish(Policy(url=crawl.name(2), refresh_forbidden=True))
    crawl.tick(T0 + 3600)
    order = {page: reasons(crawl, page).order for page in range(8)}
    assert order[1].startswith("it is ordered: REFRESH")  # its next try is in this cycle
    assert "a policy forbids it" in order[2]
    unread = [order[page] for page in range(3, 8)]
    assert sum("it is ordered: DISCOVERY by worth" in one for one in unread) >= 1
    assert any("of 5 unread pages" in one for one in unread)


def test_without_links_there_are_no_payers() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=2.0))
    crawl.visit(0, T0, links=(1,))
    crawl.see([1])
    assert reasons(crawl, 1).payers == [] and importance_for_plans(crawl.ledger) is None
    assert crawl.ledger.payers_of(12345, np.ones(2)) == []


def test_the_command_prints_every_reason_and_changes_nothing(tmp_path: Path) -> None:
    output_of("replay", LOG, "--state", tmp_path / "state", "--quiet")
    before = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()}
    url = "https://docs.tern.example/"
    text = output_of("show", url, "--state", tmp_path / "state", "--why")
    parts = ("where its importance comes from", "tern.example, ", "how it was found", "intervals between", "it is ")
    assert [part for part in parts if part not in text] == []
    told = json.loads(output_of("show", url, "--state", tmp_path / "state", "--why", "--json"))["why"]
    seen = {"failures", "answered_ms", "modified_ms", "ordered_ms"}
    assert told["changes"].keys() == {"intervals", "changed", "returned", "dated", "are_dates_believed"} | seen
    assert told["path"][-1] == url and 0.9 < sum(payer["part"] for payer in told["payers"]) < 1
    assert {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()} == before
