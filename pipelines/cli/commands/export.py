"""`opicflow export`: importance, a schedule or orders in the formats of crawlers, indexes and databases."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_results, add_state_options, now_second_of, results_of
from opicflow.pipelines.cli.output_files import check_output, file_or_stdout
from opicflow.pipelines.cli.text import counted, print_lines

if TYPE_CHECKING:
    from opicflow.pipelines.results.exports.targets import Target

EXAMPLES = """examples:
  opicflow export importance results --as nutch --out seeds.txt
  opicflow export schedule --state state --as stormcrawler --name status --out updates.ndjson
  opicflow export orders --state state --as heritrix --out orders.force
  opicflow export orders results --as scrapy-redis --name spider:start_urls | redis-cli --pipe
  opicflow export importance results --as postgres | psql
  opicflow export importance results --as csv --columns url,score,certificate
"""

PRINTS_AS_IT_GOES = True

_KINDS = ("importance", "schedule", "orders")
_TARGETS = ("csv", "jsonl", "nutch", "heritrix", "stormcrawler", "scrapy-redis", "opensearch", "postgres", "redis")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("what", choices=_KINDS, metavar="WHAT", help="importance, schedule or orders")
    add_results(parser)
    add_state_options(parser)
    parser.add_argument(
        "--as",
        dest="target",
        choices=_TARGETS,
        required=True,
        metavar="FORMAT",
        help=f"of {', '.join(_TARGETS)}: see docs/guides/export.md for the results that each takes",
    )
    parser.add_argument("--out", type=file_or_stdout, metavar="FILE", help="where to write it (standard output)")
    parser.add_argument(
        "--columns", metavar="NAMES", help="of csv, jsonl and postgres: these columns, with commas between (all)"
    )
    parser.add_argument("--name", metavar="NAME", help="of the index, the table or the key that takes it")
    parser.add_argument(
        "--routing", choices=["host", "domain", "none"], help="what an index is divided by (stormcrawler: host)"
    )
    parser.add_argument(
        "--due-by", metavar="TIME", help="of orders for a queue: those that may be fetched by then (now)"
    )
    parser.add_argument("--all", action="store_true", help="of orders for a queue: all, in the order of their times")
    parser.add_argument("--now", metavar="TIME", help="leave out orders that expire by then (the time of the latest)")


def run(options: argparse.Namespace) -> int:
    """Write the export to a file, or to standard output."""
    from opicflow.connectors.files.whole_file import whole_file
    from opicflow.pipelines.results.exports.export_job import ExportJob
    from opicflow.pipelines.results.exports.targets import TARGETS

    target = TARGETS[options.target]
    name, routing = _checked(options, target)
    if options.out is not None:
        check_output(options.out, f"{options.what}.txt")
    due_by_ms = _due_by_ms(options, target)
    rows = results_of(options, options.what, _now_ms(options), _columns_of(options, target))
    job = ExportJob(replace(rows, due_by_ms=due_by_ms, by_time=options.all), name, routing)
    pieces: Iterator[bytes] = target.writers[options.what](job)
    if options.out is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    else:
        with whole_file(options.out) as file:
            file.writelines(pieces)
    written = job.rows.counts["rows"] - job.left_out.total()
    orders = {
        "orders that expired": job.rows.counts["expired"],
        "orders that are not due: export them later, or with --all": job.rows.counts["not due"],
    }
    for why, count in {**job.left_out, **orders}.items():
        if count:
            print_lines(f"opicflow: left out: {count:,} {why}", file=sys.stderr)
    if options.out is not None:
        print_lines(f"written: {options.out}, {counted(written, 'row')}")
    return 0


def _checked(options: argparse.Namespace, target: Target) -> tuple[str, str]:
    """Return the name of what takes the export, and its routing."""
    if options.what not in target.writers:
        known = ", ".join(target.writers)
        raise InputRefused(f"export {options.what} --as {options.target}: this format is for {known}: export that")
    if options.name is not None and not target.named:
        raise InputRefused(f"--name, --as {options.target}: this format names nothing: omit --name")
    if options.routing is not None and target.routing is None:
        raise InputRefused(f"--routing, --as {options.target}: it is for stormcrawler and opensearch: omit it")
    name = options.name or target.default_name(options.what)
    if name is None and target.named:
        raise InputRefused(f"--as {options.target}: give the {target.named} with --name, such as spider:start_urls")
    return name or "", options.routing or target.routing or "none"


def _columns_of(options: argparse.Namespace, target: Target) -> tuple[str, ...]:
    """Return the columns of a table; none where the format has its own."""
    from opicflow.pipelines.results.exports.result_rows import COLUMN_TYPES

    known = tuple(COLUMN_TYPES[options.what])
    if options.columns is None:
        return known if target.is_table else ()
    if not target.is_table:
        raise InputRefused(f"--columns, --as {options.target}: this format has columns of its own: omit --columns")
    chosen = tuple(dict.fromkeys(name.strip() for name in options.columns.split(",")))
    for name in chosen:
        if name not in known:
            raise InputRefused(f"--columns {name[:40]!r}: no column of {options.what}: name some of {', '.join(known)}")
    if options.target == "postgres" and "url" not in chosen:
        raise InputRefused("--columns, --as postgres: the table has url as its key: name it too")
    return chosen


def _due_by_ms(options: argparse.Namespace, target: Target) -> int | None:
    """Return by when orders must be due; None where they need not be."""
    is_queue = target.is_queue and options.what == "orders"
    if not is_queue and (options.all or options.due_by is not None):
        given = "--all" if options.all else "--due-by"
        raise InputRefused(f"{given}, export {options.what} --as {options.target}: it is for queues of orders: omit it")
    if options.all and options.due_by is not None:
        raise InputRefused("--all, --due-by: all orders have no time: omit one")
    second = now_second_of(options.due_by or "now", "--due-by") if is_queue and not options.all else None
    return None if second is None else 1000 * second


def _now_ms(options: argparse.Namespace) -> int | None:
    if options.now is not None and options.what != "orders":
        raise InputRefused(f"--now, export {options.what}: only orders expire: omit it")
    second = now_second_of(options.now)
    return None if second is None else 1000 * second
