"""Changes that visits find: those of a plain program, where there are subscriptions, in any entries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import ItemWriter, Ledger, LedgerConfig, LogPosition, Outcome, PolicyEntry
from opicflow.pipelines.ledger.ledger import FoundChanges
from opicflow.schemas.records import Policy
from support.thorough import examples

URLS = ["https://example.org/a", "https://example.org/b", "https://other.example/"]
FIRST_MS = 1_700_000_000_000
A_DAY_MS = 86_400_000


class Visit(NamedTuple):
    url: str
    outcome: Outcome
    digest: int
    hours: int


visits = st.lists(
    st.builds(
        Visit,
        st.sampled_from(URLS),
        st.sampled_from([*[Outcome.FETCHED] * 4, Outcome.UNCHANGED, Outcome.FAILED, Outcome.GONE, Outcome.REDIRECTED]),
        st.sampled_from([0, 1, 2, 1 << 63, (5 << 32) | 5]),  # the last is folded to 0: not known
        st.integers(1, 40),
    ),
    max_size=30,
)


def folded(digest: int) -> int:
    return (digest ^ digest >> 32) & 0xFFFFFFFF


def expected(crawl: list[Visit]) -> list[tuple[str, int, int]]:
    """Return URL and digests of each visit whose content differs from what the page's newest content was."""
    newest: dict[str, int] = {}
    found = []
    for url, outcome, digest, _ in crawl:
        if outcome in (Outcome.GONE, Outcome.REDIRECTED):
            newest[url] = 0  # content before is not compared with content after
        elif outcome == Outcome.FETCHED:
            before, now = newest.get(url, 0), folded(digest)
            if before and now and before != now:
                found.append((url, before, now))
            newest[url] = now
    return found


def ledger_with(*policies: Policy) -> Ledger:
    ledger = Ledger(LedgerConfig())
    ledger.apply(PolicyEntry("policies", LogPosition(0, 0), LogPosition(1, 0), policies=policies))
    return ledger


def apply_visits(ledger: Ledger, crawl: list[Visit], sizes: list[int]) -> list[FoundChanges]:
    """Apply visits in entries of such sizes, the last one with the rest."""
    now_ms, start, found = FIRST_MS, LogPosition(0, 0), []
    while crawl:
        size = sizes.pop() if sizes else len(crawl)
        writer = ItemWriter(start)
        for url, outcome, digest, hours in crawl[:size]:
            now_ms += hours * 3_600_000
            page = ledger.page_ids.of(url)
            writer.visit(page, [page], time_ms=now_ms, outcome=outcome, digest=digest, url=url.encode())
        found.append(ledger.apply(writer.entry("crawl", start)).changes)
        start, crawl = writer.next_position, crawl[size:]
    return found


@examples(25, 300)
@given(visits, st.lists(st.integers(1, 5), max_size=6))
def test_visits_find_the_changes_of_a_plain_program_in_any_entries(crawl: list[Visit], sizes: list[int]) -> None:
    ledger = ledger_with(Policy(host="example.org", notify=True))
    url_of = {ledger.page_ids.of(url): url for url in URLS}
    found = apply_visits(ledger, list(crawl), sizes)
    rows = [row for one in found for row in zip(*(column.tolist() for column in one), strict=True)]
    assert [(url_of[page], before, after) for page, _, before, after in rows] == expected(crawl)


def test_nothing_is_noted_without_subscriptions() -> None:
    crawl = [Visit(URLS[0], Outcome.FETCHED, digest, 1) for digest in (1, 2, 3)]
    for ledger in (Ledger(LedgerConfig()), ledger_with(Policy(host="example.org", importance_factor=2.0))):
        assert [len(one.pages) for one in apply_visits(ledger, list(crawl), [])] == [0]


@pytest.mark.parametrize(("modified_ms", "changes"), [(-A_DAY_MS, 0), (A_DAY_MS // 2, 1)])
def test_a_date_shows_a_change_where_digests_are_not_known(modified_ms: int, changes: int) -> None:
    """A date before the last visit is that of the content which was seen there."""
    ledger = ledger_with(Policy(host="example.org", notify=True))
    page, found = ledger.page_ids.of(URLS[0]), []
    for number, dated in enumerate((0, modified_ms)):
        start = LogPosition(number, 0)
        writer = ItemWriter(start)
        time_ms = FIRST_MS + number * A_DAY_MS
        dated_ms = FIRST_MS + dated if dated else 0
        writer.visit(page, [page], time_ms=time_ms, modified_ms=dated_ms, url=URLS[0].encode())
        found.append(ledger.apply(writer.entry("crawl", start)).changes)
    assert [len(one.pages) for one in found] == [0, changes]
    assert not any(one.digest.any() or one.digest_before.any() for one in found)


def test_subscribers_are_of_known_pages_with_a_subscription() -> None:
    ledger = ledger_with(
        Policy(url=URLS[0], notify=True, publisher="al"), Policy(url="https://example.org/new", notify=True)
    )
    apply_visits(ledger, [Visit(url, Outcome.FETCHED, 1, 1) for url in URLS], [])
    ids = ledger.page_ids.of_all([*URLS, "https://example.org/new"])
    found = ledger.subscribers(ids)
    assert [found.names[row] for row in found.rows.tolist()] == ["al", "", "", ""]
    assert np.array_equal(found.rows > 0, [True, False, False, False])
