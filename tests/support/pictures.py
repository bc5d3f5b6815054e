"""Makes the pictures of docs/guides/serve.md from the example log; that of a stream on services of its own.

PYTHONPATH=tests:. .venv/bin/python tests/support/pictures.py [live]
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path

from PIL import Image

from opicflow.pipelines.serve.sources import StateSource
from support.browser import Browser, browser
from support.commands import output_of
from support.local_stream import LocalStream
from support.paths import TOP
from support.services import running_cluster
from support.serving import serving
from support.views import served
from support.waiting import wait_for

PICTURES = TOP / "docs" / "pictures"
LOG = TOP / "examples" / "crawl.jsonl.gz"
COLOURS = 64


def main() -> None:
    """Write screenshots of the example log: replayed, or with the word `live` in a stream."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if "live" in sys.argv:
            picture_stream(Path(folder))
        else:
            picture_state()


def picture_state() -> None:
    """Replay the log, and show the pages of its state."""
    log = Path("crawl.jsonl.gz")
    log.write_bytes(LOG.read_bytes())
    output_of("replay", log, "--state", "state", "--top", "0", "--quiet")
    with served(StateSource(Path("state"))) as at, browser() as window:
        for name, path, width, height in (
            ("serve", "/", 1100, 640),
            ("serve-narrow", "/", 360, 760),
            ("serve-page", "/search?q=https://docs.tern.example/install/", 1100, 640),
        ):
            window.resize(width, height)
            window.open(at + path)
            keep(name, window)


def picture_stream(folder: Path) -> None:
    """Publish the log into a stream, and show it while events arrive."""
    with running_cluster(folder / "services") as cluster, browser() as window:
        stream = LocalStream(cluster, folder, "", 2, history="certified")
        stream.start()
        where = ("--brokers", cluster.brokers, "--flink-master", cluster.flink_rest, "--name", stream.name)
        with serving(*where) as server:

            def is_settled() -> bool:
                output_of("publish", "events", LOG, "--brokers", cluster.brokers, "--quiet")
                window.open(server.address)
                return bool(window.run("return document.querySelector('#books').classList.contains('right')"))

            window.resize(1100, 700)
            wait_for("events are counted, and the ranks have settled", is_settled, 900)
            has_rate = "return /[1-9]\\S* events a second/.test(document.body.innerText)"
            wait_for("events a second are known", lambda: window.run(has_rate), 120)
            keep("serve-live", window)
        stream.cancel()


def keep(name: str, window: Browser) -> None:
    """Write a screenshot, with few colours."""
    seen = Image.open(io.BytesIO(window.picture()))
    seen.convert("RGB").quantize(COLOURS).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
