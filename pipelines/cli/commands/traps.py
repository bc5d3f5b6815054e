"""`opicflow traps`: pages of a state that bring only more of themselves, or what others have, and get few fetches."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from opicflow.pipelines.cli.options import add_json, add_state_options, state_of
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import natural

if TYPE_CHECKING:
    from opicflow.pipelines.ledger import Ledger
    from opicflow.pipelines.ledger.plan.trap_search import TrapFigures

EXAMPLES = """examples:
  opicflow traps --state state                 which pages get few fetches, why, and what to write about it
"""
_IN_A_FILE = " in a file of --policies"
_WHY = {
    "same content": "its pages have the same content, or one canonical URL",
    "more of itself": "its pages lead to ever more of themselves, and no other pages link to them",
    "twin": "pages have the same content or canonical URL, whatever its value is",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_state_options(parser)
    parser.add_argument("-n", "--top", type=natural, default=20, metavar="N", help="show so many (%(default)s)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the traps and twins of the ledger of a state, those that were fetched most first."""
    from opicflow.pipelines.replay.state import read_ledger

    ledger, _ = read_ledger(state_of(options))
    found = rows_of(ledger)
    rows, limits = found[: options.top], ledger.config.refresh.traps
    if options.json:
        print(json.dumps({"traps": rows, "found": len(found), "are": limits}, indent=2))
        return 0
    if not found:
        print("no traps or twins: no pages bring only more of themselves, or what others have")
        return 0
    few = "get few fetches" if limits == "limited" else "are fetched as others, because of --set traps=ignored"
    print_lines(f"{counted(len(found), 'group')} of pages that {few}:")
    for row in rows:
        print_lines(
            "",
            f"{row['what']}",
            f"  {row['known']:,} known, {row['read']:,} read, {row['limited']:,} limited; "
            f"{row['share_of_fetches']:.1%} of all fetches, {row['importance']:.2%} of importance",
            f"  why:     {row['why']}",
            f"  such as: {row['example']}",
            f"  confirm: {row['confirm']}",
            *([f"  refuse:  {row['refuse']}"] if row["refuse"] else []),
        )
    if len(found) > len(rows):
        print_lines("", f"and {len(found) - len(rows):,} more: --top {len(found)}")
    return 0


def rows_of(ledger: Ledger) -> list[dict[str, Any]]:
    """Return the figures of the traps and twins of a ledger, those that were fetched most first."""
    from opicflow.pipelines.replay.final_plan import importance_for_plans
    from opicflow.schemas.url_shapes import shape_of

    found = ledger.traps(importance_for_plans(ledger))
    return [_row(trap, shape_of(trap.example), max(ledger.visits, 1)) for trap in found]


def _row(trap: TrapFigures, shape: str, visits: int) -> dict[str, Any]:
    """Return the figures of a trap or of twins, and what to write to confirm it, or to refuse it."""
    host = trap.example.split("/")[2]
    if trap.parameter:
        what, confirm, refuse = f"{host}: parameter {trap.parameter}", f"--drop-parameters {trap.parameter}", ""
        if trap.parameter.lower() == ";jsessionid":
            confirm = "--drop-parameters jsessionid"
        elif trap.parameter.startswith(";") or trap.parameter.endswith("/"):
            what, confirm = f"{host}: {trap.parameter}... in paths", "no option drops a part of a path"
    else:
        fixed = _prefix_of(trap.example, shape)
        what, confirm = shape, "no prefix of URLs names these pages alone"
        if not any(map(str.isalnum, shape.partition("*")[2].partition("?")[0])):
            confirm = json.dumps({"url_prefix": fixed, "refresh_forbidden": True}) + _IN_A_FILE
        refuse = json.dumps({"url_prefix": fixed, "importance_factor": 1}) + _IN_A_FILE
    return {
        "what": what,
        "why": _WHY[trap.why],
        "example": trap.example,
        "known": trap.known,
        "read": trap.read,
        "limited": trap.limited,
        "share_of_fetches": round(trap.visits / visits, 6),
        "importance": round(trap.importance, 6),
        "confirm": confirm,
        "refuse": refuse,
    }


def _prefix_of(url: str, shape: str) -> str:
    """Return the part of a URL before what may be any in its shape; whole directories, as prefixes name pages."""
    scheme, _, rest = url.partition("://")
    fixed = shape.partition("*")[0]
    if not rest.startswith(fixed) or "/" not in fixed:
        fixed = rest.partition("/")[0] + "/"
    return f"{scheme}://{fixed}"
