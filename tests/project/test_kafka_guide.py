"""docs/guides/kafka.md: its outputs are real, its snippets run, it names every option.

.venv/bin/python tests/project/test_kafka_guide.py HOST:PORT     writes the outputs again; the broker must be new
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import output_of
from support.guides import CONSOLE, LOG, SPEED, TOP, opicflow, python_blocks
from support.services import LocalKafka, running

GUIDE = (TOP / "docs" / "guides" / "kafka.md").read_text(encoding="utf-8")
BROKERS = "localhost:9092"


def outputs(folder: Path, brokers: str) -> list[str]:
    """Return the console blocks as they have to be, from a broker without topics."""
    (folder / LOG.name).write_bytes(LOG.read_bytes())
    blocks = [[line for line in block.splitlines() if line.startswith("$ ")] for block in CONSOLE.findall(GUIDE)]
    commands = [line.replace(BROKERS, brokers).split()[2:] for block in blocks for line in block]
    done: Iterator[tuple[int, str, str]] = iter(
        opicflow(folder, *([*words, "--quiet"] if words[0] == "replay" else words for words in commands))
    )
    made = []
    for block in blocks:
        text = ""
        for line in block:
            code, out, err = next(done)
            text += f"{line}\n{out}{err if code else ''}"
        made.append(text.replace(brokers, BROKERS))
    return made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker without topics: the guide uses their plain names."""
    with running(tmp_path_factory.mktemp("services"), "kafka") as started:
        yield started


def plain(block: str) -> str:
    """Return the block without the parts that differ between runs."""
    return re.sub(r"published at \S+", "", SPEED.sub("", block))


def test_the_outputs_in_the_guide_are_real_and_the_snippets_run(broker: LocalKafka, tmp_path: Path) -> None:
    made = outputs(tmp_path, broker.brokers)
    assert [plain(block) for block in CONSOLE.findall(GUIDE)] == [plain(block) for block in made]
    said = []
    for snippet in python_blocks("docs/guides/kafka.md"):
        program = snippet.replace(BROKERS, broker.brokers)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), program
        said.append(done.stdout)
    produced, read = said
    assert produced == ""
    assert "https://docs.tern.example/" in read and len(read.splitlines()) >= 1904


@pytest.mark.parametrize("command", [["subscribe"], ["replay"], ["publish", "events"], ["topics", "create"]])
def test_the_guide_names_every_option(command: list[str]) -> None:
    help_ = output_of(*command, "--help")
    told = GUIDE + (TOP / "docs" / "guides" / "replay.md").read_text(encoding="utf-8")
    missing = [option for option in sorted(set(re.findall(r"--[a-z-]+", help_)) - {"--help"}) if option not in told]
    assert missing == []


def main(brokers: str, folder: Path) -> None:
    made = outputs(folder, brokers)
    blocks = iter(made)
    text = CONSOLE.sub(lambda _: f"```console\n{next(blocks)}```", GUIDE)
    (TOP / "docs" / "guides" / "kafka.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as work:
        main(sys.argv[1], Path(work))
