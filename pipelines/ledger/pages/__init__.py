"""Pages: the columns of a ledger, one row for each page, and the ways to a row.

What is here:

- `layout` declares the columns and accounts (`Table`, `Book`) with `column_kinds`, `room` makes and grows them, `space`
  is where long ones are: in memory or in mapped files; `refresh_rows` holds what only pages have that were visited or
  ordered.
- `index` takes a page id to its slot, `numbers` a slot to the short number that remembered links use.
- `url_arena` holds URLs, `url_order` their order, `links` the remembered links, `recent` the latest visits, which may
  come twice.
- `observations` notes what a visit says about a page, `announcements` what a site says about changes, `domain_counts`
  how many unread pages a domain has.

Promises: the same calls give the same bytes, wherever columns are. A slot belongs to one page until that is removed.
No code here moves cash. A kernel that runs out of room changes nothing and reports it: the caller makes room and calls
it again.

May import: the entries and the configuration of a ledger, `pipelines.refresh`, schemas. Never `cash`, `plan`, `shards`.
"""
