"""A process beside a crawler that keeps its frontier: it records visits, and chooses which page is next.

    crawler ── inbox (files) ──► recorder ── log, ledger
       ▲                            │
       └────── pages, in batches ───┘ (a socket)

What the crawler reports is in files before it goes on. So the crawler waits for no parsing, no ledger and no plan, and
a kill -9 of either process, or of both, loses no visit.
"""
