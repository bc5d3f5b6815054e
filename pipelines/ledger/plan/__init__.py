"""Plans: which pages are fetched, when, and which are removed.

What is here:

- `planner` makes the plan of a cycle in three steps: a `survey` of all pages; the `schedule`, for which a strategy of
  `pipelines.refresh` shares the bandwidth; the `crawl_orders`. All three go by the same `Terms`.
- `unread_pages` values unread pages and learns how much to explore (`pipelines.discovery`); `busy_hosts` are the hosts
  that ask to wait; `qualities` are what classifiers say of pages.
- `trap_search` finds the pages that bring only more of themselves, or what others have: plans limit them.
- `policies_in_force` holds what people say of pages; `removal` removes pages; `domain_limits` limits those of a domain.

Promises: a plan is a function of the ledger and the budget, so the same call gives the same plan; a preview changes
nothing. Neither cash nor importance depends on a plan. Of pages that are removed, the cash goes to the virtual page.

May import: `cash`, `pages`, the entries and the configuration of a ledger, `pipelines.refresh`, `pipelines.discovery`,
schemas. Never `shards`.
"""
