"""Messages for errors: one line with the cause, the file or option, and the remedy."""

from __future__ import annotations

import argparse
import errno
import re

from opicflow.schemas.errors import UserError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OPTIONS = {
    "strategy": "refresh-strategy",
    "bandwidth_per_day": "bandwidth",
    "cycle_hours": "cycle",
    "domain_fetches_per_day": "domain-fetches",
    "domain_discovery_share": "domain-discovery",
    "host_fetches_per_day": "host-fetches",
    "crawl_delay_seconds": "crawl-delay",
    "shortest_interval_seconds": "shortest-interval",
    "longest_interval_days": "longest-interval",
    "most_share of a domain": "max-share-per-domain",
    **{name: name.replace("_", "-") for name in ("discovery_share", "discovery_by", "rate_prior")},
    **{name: name.replace("_", "-") for name in ("host_fetches_per_hour", "window_turns", "window_days")},
    **{name: name for name in ("damping", "tolerance", "memory")},
}
"""The options of settings whose values a user gives, by the names that their errors begin with."""
_WHOLE = re.compile(r"(?<=\d)\.0(?=: )")
"""What Python appends to a whole number that it reads as a fraction: whoever has written -5 finds no -5.0."""
_ADDED_BY_BEAM = re.compile(r" \[while running '[^']*'(?: with name '[^']*')?\]")


def one_line(problem: BaseException) -> str:
    """Return the message of an error on one line, without what Beam appends to it."""
    return _ADDED_BY_BEAM.sub("", " ".join(str(problem).split()))


def by_option(message: str, options: argparse.Namespace) -> str:
    """Return the message of a setting that is not possible with the name of its option, if that was given.

    >>> by_option("cycle_hours is 0.0: give a number from 1", argparse.Namespace(cycle=0.0))
    '--cycle 0: give a number from 1'
    """
    field, _, rest = message.partition(" is ")
    option = _OPTIONS.get(field, "")
    if not option or getattr(options, option.replace("-", "_"), None) is None:
        return message
    if field == "strategy" and options.command == "schedule":
        option = field
    return f"--{option} {_WHOLE.sub('', rest, count=1)}"


def os_problem(problem: OSError, options: argparse.Namespace) -> str:
    """Return the message of an error of the operating system, with the path that it concerns."""
    where = problem.filename
    if where is None and problem.errno in _NO_SPACE:  # such an error names no file: it is in the work folder
        import tempfile  # with chance and compression

        where = getattr(options, "state", None) or getattr(options, "out", None) or tempfile.gettempdir()
    reason = " ".join(str(problem.strerror or problem).split())
    return f"{f'{where}: ' if where else ''}{reason}: correct this, and run the command again"


def user_problem(problem: BaseException, options: argparse.Namespace) -> str:
    """Return the message of a user's error that has the form of another exception; empty for a bug."""
    chain: BaseException | None = problem
    while chain is not None:
        if isinstance(chain, UserError):
            return one_line(chain)
        if isinstance(chain, OSError) and chain.strerror:
            return os_problem(chain, options)
        if isinstance(chain, ValueError) and str(chain).startswith("embedded null "):
            return "a path in a file that was read contains a NUL character: correct it, and run again"
        chain = chain.__cause__ or chain.__context__
    return ""
