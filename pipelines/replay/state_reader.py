"""The state folder of a replay, opened for reading."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.schemas.urls import NotAPage, UrlRules, canonical

if TYPE_CHECKING:
    from opicflow.pipelines.ledger import Ledger
    from opicflow.pipelines.replay.answers import Answers
    from opicflow.pipelines.replay.state import State, StateFolder
    from opicflow.pipelines.stages.rules import Rules


def read_ledger(path: Path) -> tuple[Ledger, Rules]:
    """Read the ledger and the rules of the last checkpoint of a state folder.

    Nothing is written or locked: the folder may be read-only, and a replay may be running in it.
    """
    from opicflow.pipelines.ledger import LedgerConfig
    from opicflow.pipelines.replay.replayed_log import ReplayConfig
    from opicflow.pipelines.replay.state import StateFolder, StateRefused

    folder = StateFolder(path)
    while True:
        state = read_state(folder)
        try:
            config = ReplayConfig(
                LedgerConfig.from_json(state.config["ledger"]),
                page_ids=state.rules_of_page_ids,
                multiplier=int.from_bytes(os.urandom(8), "little"),
            )
            ledger = folder.log(state, config).ledger
        except StateRefused:
            if read_state(folder).snapshot == state.snapshot:
                raise
            continue  # a replay removed this checkpoint after it had written the next one
        return ledger, state.last_rules


def read_answers(path: Path) -> tuple[Answers, Rules]:
    """Read the answers and the rules of the last checkpoint; from its ledger where no answers were kept."""
    from opicflow.pipelines.replay.answers import answers_of
    from opicflow.pipelines.replay.answers import read_answers as read_kept_answers
    from opicflow.pipelines.replay.state import StateFolder

    state = read_state(StateFolder(path))
    answers = read_kept_answers(path, state.snapshot)
    if answers is not None:
        return answers, state.last_rules
    ledger, rules = read_ledger(path)
    return answers_of(ledger), rules


def read_state(folder: StateFolder) -> State:
    """Read everything of a state folder but its ledger, of which there must be one."""
    from opicflow.pipelines.replay.state import FRONTIER_LOG_NAME, StateRefused

    state = folder.read()
    if state is None:
        log = folder.path / FRONTIER_LOG_NAME
        if log.exists():
            raise StateRefused(
                f"{folder.path}: its crawl has not saved a ledger yet: wait a minute, or use opicflow replay {log}"
            )
        if (folder.path / "state.json").exists():
            raise StateRefused(f"{folder.path}: no ledger yet: the first replay into it did not reach a checkpoint")
        advice = f"make one with opicflow replay LOG --state {folder.path}"
        if (folder.path / "summary.json").exists():
            advice = "it has results: name the folder that replay --state wrote"
        raise StateRefused(f"{folder.path}: no state of a replay: {advice}")
    return state


def canonical_url(text: str, rules: UrlRules | None = None, option: str = "") -> str:
    """Return the canonical URL of a page that a user named; `option` begins the message of a refusal."""
    try:
        return canonical(text, None, rules or UrlRules()).decode()
    except NotAPage as problem:
        advice = "give the URL of a page"
        if "@" not in text:  # mailto:a@example.org
            with suppress(NotAPage):
                canonical(f"https://{text}", None, rules or UrlRules())
                advice = f"do you mean https://{text[:200]} ?"
        raise InputRefused(f"{option}{text[:200] or repr(text)}: {problem}: {advice}") from None
