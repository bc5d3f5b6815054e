"""The state folder of a replay, opened for reading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.schemas.urls import NotAPage, UrlRules, canonical

if TYPE_CHECKING:
    from opicflow.pipelines.ledger import Ledger
    from opicflow.pipelines.transforms.route import Rules


def read_ledger(path: Path) -> tuple[Ledger, Rules]:
    """Read the ledger and the rules of the last checkpoint of a state folder.

    Nothing is written or locked: the folder may be read-only, and a replay may be running in it.
    """
    from opicflow.pipelines.ledger import LedgerConfig
    from opicflow.pipelines.replay.keeper import KeeperConfig
    from opicflow.pipelines.replay.state import StateFolder, StateRefused
    from opicflow.pipelines.transforms.route import Rules

    folder = StateFolder(path)
    while True:
        state = folder.read()
        if state is None:
            raise StateRefused(f"{path}: no state of a replay: make one with opicflow replay LOG --state {path}")
        if not state.snapshot:
            raise StateRefused(f"{path}: no ledger yet: the first replay into it did not reach a checkpoint")
        try:
            keeper = folder.keeper(state, KeeperConfig(LedgerConfig.from_json(state.config["ledger"])))
        except StateRefused:
            newer = folder.read()
            if newer is None or newer.snapshot == state.snapshot:
                raise
            continue  # a replay removed this checkpoint after it had written the next one
        return keeper.ledger, Rules.from_json(state.rules[-1])


def canonical_url(text: str, rules: UrlRules | None = None, option: str = "") -> str:
    """Return the canonical URL of a page that a user named; `option` begins the message of a refusal."""
    try:
        return canonical(text, None, rules or UrlRules()).decode()
    except NotAPage as problem:
        advice = "give the URL of a page" if "://" in text else f"do you mean https://{text[:200]} ?"
        raise InputRefused(f"{option}{text[:200]}: {problem}: {advice}") from None
