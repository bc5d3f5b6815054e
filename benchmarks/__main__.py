"""Run the groups of benchmarks, print their figures as a table, and write them to build/bench.json.

Every module of this package that has a function `measure(scale: Scale)` is a group.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from benchmarks import harness


def groups_of_benchmarks() -> list[str]:
    """Return the names of the groups, without importing them."""
    modules = Path(__file__).parent.glob("*.py")
    return sorted(path.stem for path in modules if "\ndef measure(scale: Scale)" in path.read_text(encoding="utf-8"))


def main() -> None:
    """Read the command line and run the groups that it names."""
    groups = groups_of_benchmarks()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="measure speed and memory")
    parser.add_argument("group", nargs="?", help=f"one of {', '.join(groups)}; without it all groups")
    parser.add_argument(
        "--scale",
        choices=[scale.value for scale in harness.Scale],
        default=harness.Scale.USUAL.value,
        help="tiny: next to nothing, to see that it runs; full: the sizes of the documents; %(default)s: a group takes "
        "six minutes at most",
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"), help="where the figures go (%(default)s)")
    chosen = parser.parse_args()
    if chosen.group is not None and chosen.group not in groups:
        parser.exit(2, f"benchmarks: there is no group {chosen.group!r}: give one of {', '.join(groups)}, or none\n")
    machine = harness.machine()
    figures = []
    for group in groups if chosen.group is None else [chosen.group]:
        figures += import_module(f"benchmarks.{group}").measure(harness.Scale(chosen.scale))
    print("\n".join([*machine, "", *harness.table(figures)]))
    harness.write(figures, chosen.out)


if __name__ == "__main__":
    main()
