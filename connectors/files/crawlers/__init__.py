"""The logs of other crawlers: a module for each format, which recognises its records and turns them into events."""
