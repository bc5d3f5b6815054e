"""Results of the last finished replay, kept beside its ledger, so that questions about them need not restore it.

    answers-000012/   the final parts of the run that ended with snapshot-000012, their names, the plan in
                      words, and the policies in force

They are a copy: where they are missing, of another snapshot or damaged, the ledger has the same answers.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opicflow.connectors.files.whole_file import sync_folder, whole_file
from opicflow.pipelines.ledger import Ledger
from opicflow.pipelines.replay.final_plan import final_ranks, importance_for_plans, plan_in_words, schedule_parts
from opicflow.pipelines.replay.state import StateFolder, read_ledger
from opicflow.pipelines.results.part_files import part_paths, read_part
from opicflow.pipelines.stages.outputs import FINAL_IMPORTANCE, FINAL_ORDERS, FINAL_SCHEDULE
from opicflow.pipelines.stages.publish import PlanFigures, everything, pack_orders
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.columns import unpack
from opicflow.schemas.policy_json import policy_to_json

MOST_PAGES = 1_000_000
"""Larger ledgers keep none: the copy would take too much space."""
_CONTENTS = "contents.json"
_KINDS = (FINAL_IMPORTANCE, FINAL_SCHEDULE, FINAL_ORDERS)


@dataclass(frozen=True)
class Answers:
    """The pages of a ledger, their schedules and the next orders, as packed columns; and the plan in words."""

    importance: Sequence[bytes]
    """All pages, the most important first."""
    schedules: Sequence[bytes]
    """All pages whose URL is known."""
    orders: bytes
    plan: PlanFigures
    policies: Sequence[dict[str, object]]
    """The policies in force, in the order in which they were stated."""


def write_answers(
    state: Path, snapshot: str, work: Path, plan: PlanFigures, policies: Sequence[dict[str, object]]
) -> None:
    """Move the final parts of a run from its work folder to the answers of its last snapshot."""
    answers = _folder(state, snapshot)
    partial = answers.with_name(f"{answers.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    parts = sorted(part.name for kind in _KINDS for part in part_paths(work, kind))
    for name in parts:
        os.rename(work / name, partial / name)
    with whole_file(partial / _CONTENTS) as file:
        file.write(json.dumps({"parts": parts, "plan": plan, "policies": policies}).encode())
    sync_folder(partial)
    shutil.rmtree(answers, ignore_errors=True)
    os.rename(partial, answers)


def read_answers(path: Path) -> tuple[Answers, Rules]:
    """Read the answers and the rules of the last checkpoint of a state; from its ledger where no answers were kept."""
    state = StateFolder(path).read_existing()
    answers = kept_answers(path, state.snapshot)
    if answers is not None:
        return answers, state.last_rules
    ledger, rules = read_ledger(path)
    return answers_of(ledger), rules


def kept_answers(path: Path, snapshot: str) -> Answers | None:
    """Return the answers of a snapshot that are kept in a state; None if it has none, or they are damaged."""
    folder = _folder(path, snapshot)
    try:
        contents = json.loads((folder / _CONTENTS).read_bytes())
        parts = {name: read_part(folder / name) for name in contents["parts"]}
        for part in parts.values():
            unpack(part)  # which compares its checksum
        importance, schedules, orders = (
            [part for name, part in parts.items() if name.startswith(f"{kind}-")] for kind in _KINDS
        )
        return Answers(importance, schedules, orders[0], contents["plan"], contents["policies"])
    except (OSError, ValueError, LookupError, TypeError, zlib.error):
        return None


def answers_of(ledger: Ledger) -> Answers:
    """Return the answers of a ledger itself.

    Of one shard among several they are those for its pages, by its own estimates: only a whole graph can settle.
    """
    settled = final_ranks(ledger, settle=False) if ledger.shards == 1 else None
    planned = ledger.preview(importance=importance_for_plans(ledger, settled))
    return Answers(
        importance=list(everything(ledger, settled)),
        schedules=list(schedule_parts(ledger, planned)),
        orders=pack_orders(ledger, planned),
        plan=plan_in_words(ledger, planned),
        policies=policies_in_force(ledger),
    )


def policies_in_force(ledger: Ledger) -> list[dict[str, object]]:
    """Return the policies of a ledger as plain values, in the order in which they were stated."""
    return [policy_to_json(one.policy) for one in ledger.policies]


def _folder(state: Path, snapshot: str) -> Path:
    return state / f"answers-{snapshot.rpartition('-')[2]}"
