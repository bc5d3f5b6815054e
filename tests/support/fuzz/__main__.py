"""Fuzzes from the command line: `PYTHONPATH=tests .venv/bin/python -m support.fuzz --seed 5 --inputs 10000`."""

from __future__ import annotations

import argparse
import sys

from support.fuzz.readers import READERS
from support.fuzz.runner import fuzz, table, works_of
from support.paths import TOP


def main() -> int:
    """Run, and print the table; 1 if an input failed."""
    parser = argparse.ArgumentParser(prog="python -m support.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="what all inputs follow from")
    parser.add_argument("--inputs", type=int, default=10_000, help="how many, shared out; 0 = all")
    parser.add_argument("--only", nargs="+", choices=READERS, default=[], help="these readers only")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input of each reader")
    parser.add_argument("--bounds", action="store_true", help="with numba's checks of bounds")
    given = parser.parse_args()
    works = works_of(given.inputs, given.only, given.first)
    reports = fuzz(given.seed, works, TOP / "build" / "fuzz" / str(given.seed), given.bounds)
    failures = [line for report in reports for line in report.failures]
    print("\n".join([f"seed {given.seed}", table(reports), *failures[:50]]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
