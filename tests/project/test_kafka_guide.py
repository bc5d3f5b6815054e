"""docs/guides/kafka.md: its outputs are real, its snippets run.

PYTHONPATH=tests:. .venv/bin/python tests/project/test_kafka_guide.py HOST:PORT     writes them again, by a new broker
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from support.guides import Guide, python_blocks
from support.services import LocalKafka

GUIDE, BROKERS = Guide("kafka"), "localhost:9092"


def test_the_outputs_in_the_guide_are_real_and_the_snippets_run(mortal_kafka: LocalKafka, tmp_path: Path) -> None:
    """No other test of that broker uses the plain names of topics, which the guide has."""
    GUIDE.check(tmp_path, instead={BROKERS: mortal_kafka.brokers})
    said = []
    for snippet in python_blocks("docs/guides/kafka.md"):
        program = snippet.replace(BROKERS, mortal_kafka.brokers)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), program
        said.append(done.stdout)
    produced, read = said
    assert produced == ""
    assert "https://docs.tern.example/" in read and len(read.splitlines()) >= 1904


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        GUIDE.write(Path(work), instead={BROKERS: sys.argv[1]})
