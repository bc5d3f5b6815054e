"""Makes the pictures of docs/guides/serve.md from the example log.

PYTHONPATH=tests .venv/bin/python tests/support/pictures.py
"""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path

from PIL import Image

from opicflow.pipelines.serve.sources import StateSource
from support.browser import browser
from support.commands import output_of
from support.paths import TOP
from support.views import served

PICTURES = TOP / "docs" / "pictures"
COLOURS = 64


def main() -> None:
    """Replay the example log, open its pages, and write what is seen."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        log = Path("crawl.jsonl.gz")
        log.write_bytes((TOP / "examples" / log).read_bytes())
        output_of("replay", log, "--state", "state", "--report", "report.html", "--top", "0", "--quiet")
        with served(StateSource(Path("state"))) as at, browser() as window:
            for name, path, width, height, dark in (
                ("serve", "/", 1100, 640, False),
                ("serve-narrow", "/", 360, 760, False),
                ("serve-page", "/search?q=https://docs.tern.example/install/", 1100, 640, False),
            ):
                window.look(width, height, dark)
                window.open(at + path)
                seen = Image.open(io.BytesIO(window.picture()))
                seen.convert("RGB").quantize(COLOURS).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
