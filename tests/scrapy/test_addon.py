"""A spider with the add-on writes every visit, reads important pages first, and goes on after a kill -9."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.services.processes import wait_until
from opicflow.pipelines.graph.oracle import pagerank
from opicflow.pipelines.web.webs import power_law_web
from support.paths import TOP
from support.scrapy_web import ScrapyWeb, served

PAGES = 600
GRAPH = power_law_web(PAGES, 7)

GUIDE = (TOP / "docs" / "guides" / "crawlers.md").read_text(encoding="utf-8")
SPIDER = re.findall(r"```python spider\n(.*?)```", GUIDE, re.DOTALL)[0]
ADDON = '        "ADDONS": {"opicflow.pipelines.scrapy.Addon": 500},\n'


@pytest.fixture
def web() -> Iterator[ScrapyWeb]:
    with served(GRAPH) as web:
        yield web


def spider(folder: Path, web: ScrapyWeb, *options: str, addon: bool = True) -> subprocess.Popen[str]:
    """Start a crawl."""
    folder.mkdir(exist_ok=True)
    assert SPIDER.count(ADDON) == 1
    code = SPIDER.replace("https://example.org/", f"{web.root}/page/0").replace(ADDON, ADDON if addon else "")
    (folder / "web.py").write_text(code)
    given = [part for option in ("RETRY_TIMES=1", *options) for part in ("-s", option)]
    command = [sys.executable, "-m", "scrapy", "runspider", "web.py", *given]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    """Return what a crawl has printed."""
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "Traceback" not in err, err[-3000:]
    return err


def events(folder: Path) -> list[dict[str, object]]:
    log = folder / "opicflow" / "web" / "visits.jsonl"
    return [json.loads(line) for line in log.read_bytes().splitlines()]


def pages(paths: list[str]) -> list[str]:
    return [path for path in paths if path.startswith("/page/")]


def test_a_crawl_writes_every_visit(tmp_path: Path, web: ScrapyWeb) -> None:
    ended(spider(tmp_path, web))
    visits = {str(event["url"]).removeprefix(web.root): event for event in events(tmp_path) if "kind" not in event}
    fetched = Counter(pages(web.fetched))
    assert set(fetched) == {path for path in visits if path.startswith("/page/")} and len(fetched) > PAGES // 2
    assert visits["/gone"]["status"] == 404 and visits["/broken"]["status"] == 500
    assert visits["/private/1"]["failure"] == "robots" and "/private/1" not in web.fetched
    assert "mailto:a@b.example" in visits["/page/0"]["links"]  # type: ignore[operator]
    assert {"url": f"{web.root}/odd/1", "rel": "nofollow"} in visits["/page/0"]["links"]  # type: ignore[operator]
    moved = {path for path in web.fetched if path.startswith("/moved/")}
    redirected = {str(hop).removeprefix(web.root) for event in visits.values() for hop in event.get("redirects", ())}  # type: ignore[attr-defined]
    assert moved <= redirected | set(visits) and moved
    assert max(fetched.values()) == 1


def test_a_crawl_that_is_killed_goes_on_and_reads_each_page_once(tmp_path: Path, web: ScrapyWeb) -> None:
    process = spider(tmp_path, web)
    assert wait_until(lambda: len(pages(web.fetched)) >= 120, 120)
    process.kill()
    process.communicate()
    ended(spider(tmp_path, web))
    recorded = Counter(str(event["url"]) for event in events(tmp_path) if "kind" not in event)
    fetched = Counter(pages(web.fetched))
    assert {web.root + path for path in fetched} <= set(recorded) and len(fetched) > PAGES // 2
    assert sum(fetched.values()) - len(fetched) <= 40  # those that were under way when it was killed
    ended(spider(tmp_path, web))
    assert Counter(pages(web.fetched)) == fetched  # nothing is due yet


def test_a_crawl_that_is_asked_to_stop_loses_no_visit(tmp_path: Path, web: ScrapyWeb) -> None:
    process = spider(tmp_path, web)
    assert wait_until(lambda: len(pages(web.fetched)) >= 100, 120)
    process.terminate()
    process.communicate(timeout=120)
    recorded = {str(event["url"]).removeprefix(web.root) for event in events(tmp_path)}
    assert set(pages(web.fetched)) <= recorded


def test_important_pages_are_read_first(tmp_path: Path) -> None:
    ranks = pagerank(GRAPH).values
    shares = []
    for addon in (True, False):
        with served(GRAPH) as web:
            process = spider(tmp_path / str(addon), web, f"CLOSESPIDER_PAGECOUNT={PAGES // 5}", addon=addon)
            ended(process)
            read = [int(path.rpartition("/")[2]) for path in dict.fromkeys(pages(web.fetched))][: PAGES // 5]
            shares.append(float(ranks[read].sum()))
    assert shares[0] > 1.2 * shares[1], shares
