"""docs/guides/url-frontier.md: its commands print the outputs in it, and it names every option."""

from __future__ import annotations

import re
from pathlib import Path

from support.commands import output_of
from support.frontier_service import FrontierService, served
from support.guides import CONSOLE, LOG, TOP, opicflow

GUIDE = (TOP / "docs" / "guides" / "url-frontier.md").read_text(encoding="utf-8")


def test_the_outputs_in_the_guide_are_real(tmp_path: Path) -> None:
    (shown,) = CONSOLE.findall(GUIDE)
    with served(FrontierService(1_800_000_000)) as address:
        lines = [line for line in shown.splitlines() if line.startswith("$ ")]
        commands = [line.replace("localhost:7071", address).split()[2:] for line in lines]
        _, *done = opicflow(tmp_path, ["replay", str(LOG), "--out", "results", "--quiet"], *commands)
    assert shown == "".join(f"{line}\n{out}{errors}" for line, (_, out, errors) in zip(lines, done, strict=True))


def test_the_guide_names_every_option() -> None:
    options = set(re.findall(r"--[a-z-]+", output_of("push", "--help"))) - {"--help", "--config"}
    assert [option for option in options if f"`{option}" not in GUIDE] == []
