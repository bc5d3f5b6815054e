"""A crawler that has read everything before: it answers from the example log. See docs/guides/communities.md.

    python examples/stand_in_crawler.py WANTED >> fetched.jsonl

WANTED are hosts, one a line, or the crawl orders of `opicflow community plan`. It prints the log's events for these
pages.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from opicflow.schemas.urls import canonical, host

LOG = Path(__file__).with_name("crawl.jsonl.gz")


def main(wanted: str) -> None:
    """Print the events of the pages or hosts that are wanted."""
    lines = Path(wanted).read_bytes().splitlines()
    pages = {json.loads(line)["url"].encode() for line in lines if line.startswith(b"{")}
    hosts = set(lines) - {b""}
    with gzip.open(LOG) as log:
        for line in log:
            try:
                page = canonical(json.loads(line)["url"])
            except (ValueError, TypeError, KeyError):  # the log has lines that are no events
                continue
            if page in pages or host(page) in hosts:
                sys.stdout.buffer.write(line)


if __name__ == "__main__":
    main(sys.argv[1])
