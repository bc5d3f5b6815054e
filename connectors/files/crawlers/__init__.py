"""The logs of other crawlers: a module for each format, which says how a record is recognised and what it means."""
