"""A spider with the add-on writes every visit, reads important pages first, and goes on after a kill -9."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from kafka import TopicPartition
from scrapy.settings import BaseSettings

from deploy.services.processes import wait_until
from opicflow.connectors.kafka.partitions import resolve
from opicflow.pipelines.crawl.recorder.recorder import ledger_and_rules
from opicflow.pipelines.crawl.scrapy.addon_settings import recorder_config
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import ConfigRefused, LedgerConfig
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.replay.state import StateFolder
from support.commands import create_topics, output_of
from support.guides import python_blocks
from support.scrapy_web import ScrapyWeb, is_free, served
from support.services import LocalKafka

PAGES = 600
GRAPH = power_law_web(PAGES, 7)

_, SPIDER, _, SETTINGS = python_blocks("docs/guides/crawlers.md")  # tests/project runs the others
ADDON = '        "ADDONS": {"opicflow.pipelines.crawl.scrapy.Addon": 500},\n'


@pytest.fixture
def web() -> Iterator[ScrapyWeb]:
    with served(GRAPH) as web:
        yield web


def spider(
    folder: Path, web: ScrapyWeb, *options: str, addon: bool = True, new_session: bool = False
) -> subprocess.Popen[str]:
    """Start a crawl."""
    folder.mkdir(exist_ok=True)
    assert SPIDER.count(ADDON) == 1
    code = SPIDER.replace("https://example.org/", f"{web.root}/page/0").replace(ADDON, ADDON if addon else "")
    (folder / "web.py").write_text(code)
    given = [part for option in ("RETRY_TIMES=1", *options) for part in ("-s", option)]
    command = [sys.executable, "-m", "scrapy", "runspider", "web.py", *given]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=new_session)


WITH_SLOW_CALLBACKS = {
    "    def parse(self, response):\n": "    async def parse(self, response):\n"
    "        await __import__('asyncio').sleep(0.7)\n"
    "        with open('callbacks', 'a') as file:\n            print(response.url, file=file)\n"
}
WITH_ANOTHER_CALLBACK = {
    "self.parse)": "self.page)",
    "response):\n": "response):\n        yield from self.page(response)\n\n    def page(self, response):\n",
}
WITH_A_CLASS = {
    "import scrapy\n": "import sys\n\nimport scrapy\n\nsys.path.insert(0, '.')\nfrom kinds import Kind\n",
    "self.parse)": "self.parse, meta={'kind': Kind()})",
}
KNOWING_NO_CLASS = {"import scrapy\n": "import sys\n\nimport scrapy\n\nsys.path.insert(0, '.')\n"}
KILLED_AT_A_WRITE = """
import os, signal
left = [int(os.environ.get("WRITES", 0))]
def counted(write):
    def write_or_die(*arguments):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*arguments)
    return write_or_die
os.write = counted(os.write)
"""
WITH_CALLBACKS_THAT_CANNOT_BE_STORED = {"self.parse)": "lambda answer: self.parse(answer))"}
WITH_NOTED_CALLBACKS = {
    "import scrapy\n": f"import scrapy\n{KILLED_AT_A_WRITE}\n",
    "response):\n": "response):\n        with open('callbacks', 'a') as file:\n"
    "            print(response.url, file=file)\n",
}
ANOTHER_REQUEST = """
class AnotherRequest:
    def process_response(self, request, response):
        response.request = request.replace()
        return response
"""
WITH_ANOTHER_REQUEST = {
    "import scrapy\n": f"import scrapy\n{ANOTHER_REQUEST}\n",
    "custom_settings = {\n": 'custom_settings = {\n        "DOWNLOADER_MIDDLEWARES": {AnotherRequest: 50},\n',
}
A_DAY_LATER = """
import time
now = time.time
time.time = lambda: now() + 90_000
"""
SMALL_INBOX = """
import os, signal
from opicflow.pipelines.crawl.log import InboxWriter
from opicflow.pipelines.crawl.scrapy.recorder_process import RecorderProcess
InboxWriter.__init__.__defaults__ = (20_000, 100_000)
ask = RecorderProcess.ask
def ask_and_stand_still(self, *question):
    ask(self, *question)
    if not self._is_still:
        os.kill(self._process.pid, signal.SIGSTOP)
        RecorderProcess._is_still = True
RecorderProcess.ask, RecorderProcess._is_still = ask_and_stand_still, False
"""
NO_RECORDER = """
import os, signal
from opicflow.pipelines.crawl.log import InboxWriter
from opicflow.pipelines.crawl.scrapy.recorder_process import RecorderProcess
InboxWriter.__init__.__defaults__ = (20_000, 100_000)
ask = RecorderProcess.ask
def ask_and_kill(self, *question):
    ask(self, *question)
    if not self.is_given_up:
        os.kill(self._process.pid, signal.SIGKILL)
RecorderProcess.ask = ask_and_kill
"""
NO_ROOM = """
import os
write, left = os.write, [100_000]
def write_while_there_is_room(file, data):
    left[0] -= len(data)
    return write(file, data if left[0] >= 0 else data[:5])
os.write = write_while_there_is_room
"""


def changed_spider(folder: Path, web: ScrapyWeb, changes: dict[str, str], *options: str) -> subprocess.Popen[str]:
    """Start a crawl with a spider whose code is changed."""
    folder.mkdir(exist_ok=True)
    code = SPIDER.replace("https://example.org/", f"{web.root}/page/0")
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_crawl_of_twenty_lines_that_is_killed_goes_on_reads_each_page_once_and_important_pages_first(
    tmp_path: Path, web: ScrapyWeb
) -> None:
    assert len(SPIDER.splitlines()) <= 20
    process = spider(tmp_path, web)
    assert wait_until(lambda: len(pages(web.fetched)) >= 120, 120)
    process.kill()
    process.communicate()
    ended(spider(tmp_path, web))
    recorded = Counter(str(event["url"]) for event in events(tmp_path) if "kind" not in event)
    fetched = Counter(pages(web.fetched))
    assert {web.root + path for path in fetched} <= set(recorded) and len(fetched) > PAGES // 2
    assert sum(fetched.values()) - len(fetched) <= 80  # those that were under way when it was killed, or just over
    ended(spider(tmp_path, web))
    assert Counter(pages(web.fetched)) == fetched  # nothing is due yet
    ranks = pagerank(GRAPH).values
    read = [int(path.rpartition("/")[2]) for path in fetched]  # in their order
    rest = float(ranks[read[240:]].sum())
    assert rest < 0.225, rest  # breadth first it is 0.245, in any order 0.68; how soon the first orders come varies
    top = json.loads(output_of("top", "--state", tmp_path / "opicflow" / "web", "--json"))
    assert top[0]["url"] == f"{web.root}/page/{int(ranks.argmax())}"


def recorders(process: subprocess.Popen[str]) -> list[int]:
    """Return the processes that a crawl has started."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("goes_first", ["crawl", "recorder"])
def test_a_crawl_that_is_killed_with_its_recorder_loses_no_visit(
    tmp_path: Path, web: ScrapyWeb, goes_first: str
) -> None:
    process = spider(tmp_path, web)
    assert wait_until(lambda: len(pages(web.fetched)) >= 120, 120)
    for pid in sorted([process.pid, *recorders(process)], reverse=goes_first == "recorder"):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    fetched_before = Counter(pages(web.fetched))
    ended(spider(tmp_path, web, "CLOSESPIDER_PAGECOUNT=20"))
    recorded = Counter(str(event["url"]).removeprefix(web.root) for event in visited(tmp_path))
    lost = [path for path in fetched_before if path not in recorded]
    assert len(lost) <= 16  # those that were under way when it was killed
    assert max(Counter(pages(web.fetched)).values()) <= 2


@pytest.mark.slow
def test_a_crawl_whose_recorder_is_killed_goes_on_and_loses_no_visit(tmp_path: Path, web: ScrapyWeb) -> None:
    process = spider(tmp_path, web)
    for least in (60, 200):
        assert wait_until(lambda least=least: len(pages(web.fetched)) >= least, 120)  # type: ignore[misc]
        for pid in recorders(process):
            os.kill(pid, signal.SIGKILL)
    err = ended(process)
    assert err.count("the recorder was ended by signal 9: the recorder is started again") == 2
    recorded = Counter(str(event["url"]).removeprefix(web.root) for event in visited(tmp_path))
    fetched = Counter(pages(web.fetched))
    assert set(fetched) <= set(recorded) and len(fetched) > PAGES // 2 and max(fetched.values()) == 1


@pytest.mark.slow
def test_a_folder_that_another_crawl_uses_is_refused_by_its_name(tmp_path: Path, web: ScrapyWeb) -> None:
    process = spider(tmp_path, web, "DOWNLOAD_DELAY=1")
    assert wait_until(lambda: bool(pages(web.fetched)), 120)
    _, err = spider(tmp_path, web).communicate(timeout=120)
    assert "in use by another crawl: wait for it, or name another folder in OPICFLOW_FOLDER" in err
    process.terminate()
    process.communicate(timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("kills_at", [1, 60])
def test_pages_whose_callbacks_were_not_over_when_a_crawl_was_killed_come_again(
    tmp_path: Path, web: ScrapyWeb, kills_at: int
) -> None:
    """Also the first page, without which there is no other."""
    process = changed_spider(tmp_path, web, WITH_SLOW_CALLBACKS, "CLOSESPIDER_PAGECOUNT=150")
    assert wait_until(lambda: len(pages(web.fetched)) >= kills_at, 120)
    before = set(pages(web.fetched))
    Event().wait(0.2)  # their callbacks have begun
    process.kill()
    process.communicate()
    had = (tmp_path / "callbacks").read_text().split() if kills_at > 1 else []
    assert len(had) < len(set(pages(web.fetched))) or kills_at == 1
    ended(changed_spider(tmp_path, web, WITH_SLOW_CALLBACKS, "CLOSESPIDER_PAGECOUNT=200"))
    had = (tmp_path / "callbacks").read_text().split()
    assert before <= {url.removeprefix(web.root) for url in had} and len(had) > 150


@pytest.mark.slow
def test_a_crawl_that_is_killed_at_any_write_loses_no_page(
    tmp_path: Path, web: ScrapyWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    for writes in (1, 2, 3, 4, 5, 20, 51, 90):
        monkeypatch.setenv("WRITES", str(writes))
        process = changed_spider(tmp_path, web, WITH_NOTED_CALLBACKS)
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
    monkeypatch.delenv("WRITES")
    ended(changed_spider(tmp_path, web, WITH_NOTED_CALLBACKS))
    had = Counter((tmp_path / "callbacks").read_text().split())
    del had[f"{web.root}/private/1"]  # Scrapy 2.19 does not obey robots.txt for pages that have waited for it together
    alone = tmp_path / "alone"
    ended(changed_spider(alone, web, WITH_NOTED_CALLBACKS))
    assert had.keys() == set((alone / "callbacks").read_text().split())
    assert had.total() - len(had) <= 8 * 16  # those under way at a kill came again


@pytest.mark.slow
def test_pages_whose_requests_a_middleware_has_replaced_are_done_when_the_crawl_is_over(
    tmp_path: Path, web: ScrapyWeb
) -> None:
    for most in (60, 120):
        ended(changed_spider(tmp_path, web, WITH_ANOTHER_REQUEST, f"CLOSESPIDER_PAGECOUNT={most}"))
    fetched = pages(web.fetched)
    assert len(fetched) >= 120 and len(fetched) - len(set(fetched)) <= 16  # those under way when the first one ended


@pytest.mark.slow
def test_requests_that_cannot_be_stored_are_made_by_this_crawl(tmp_path: Path, web: ScrapyWeb) -> None:
    ended(changed_spider(tmp_path, web, WITH_CALLBACKS_THAT_CANNOT_BE_STORED))
    fetched = Counter(pages(web.fetched))
    assert len(fetched) > PAGES // 2 and max(fetched.values()) == 1
    assert {web.root + path for path in fetched} <= {str(event["url"]) for event in visited(tmp_path)}


@pytest.mark.slow
def test_requests_for_a_callback_that_the_spider_has_no_more_are_left_with_a_word(
    tmp_path: Path, web: ScrapyWeb
) -> None:
    ended(changed_spider(tmp_path, web, WITH_ANOTHER_CALLBACK, "CLOSESPIDER_PAGECOUNT=30"))
    fetched = len(web.fetched)
    err = ended(spider(tmp_path, web))
    assert err.count("wait for a spider that can make them: Method 'page' not found in") == 1
    assert len(web.fetched) == fetched
    ended(changed_spider(tmp_path, web, WITH_ANOTHER_CALLBACK, "CLOSESPIDER_PAGECOUNT=30"))
    assert len(pages(web.fetched)) > fetched


@pytest.mark.slow
def test_requests_with_a_class_that_the_project_has_no_more_are_left_with_a_word(
    tmp_path: Path, web: ScrapyWeb
) -> None:
    (tmp_path / "kinds.py").write_text("class Kind: ...\n")
    ended(changed_spider(tmp_path, web, WITH_A_CLASS, "CLOSESPIDER_PAGECOUNT=30"))
    (tmp_path / "kinds.py").write_text("")
    err = ended(changed_spider(tmp_path, web, KNOWING_NO_CLASS))
    assert err.count("wait for a spider that can make them: Can't get attribute 'Kind' on <module 'kinds'") == 1
    assert "'finish_reason': 'finished'" in err


@pytest.mark.slow
def test_a_crawl_that_is_started_the_next_day_reads_what_became_due(
    tmp_path: Path, web: ScrapyWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(spider(tmp_path, web))
    first = Counter(pages(web.fetched))
    (tmp_path / "tomorrow").mkdir()
    (tmp_path / "tomorrow" / "sitecustomize.py").write_text(A_DAY_LATER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "tomorrow"))
    ended(spider(tmp_path, web))
    again = Counter(pages(web.fetched)) - first
    assert set(again) <= set(first) and max(again.values()) == 1
    assert len(again) > 0.9 * len(first)


@pytest.mark.slow
def test_pages_that_could_not_be_fetched_are_for_the_next_crawl(tmp_path: Path, web: ScrapyWeb) -> None:
    web.slow_seconds = 60.0
    options = ("RETRY_ENABLED=0", "DOWNLOAD_TIMEOUT=1", "CLOSESPIDER_PAGECOUNT=60")
    spider(tmp_path, web, *options).communicate(timeout=300)
    failed = {str(event["url"]) for event in visited(tmp_path) if "failure" in event}
    failed = {url for url in failed if "/page/" in url}
    web.slow_seconds = 0.0
    ended(spider(tmp_path, web))
    assert failed and failed <= {str(event["url"]) for event in visited(tmp_path) if event.get("status") == 200}


@pytest.mark.slow
def test_a_crawl_without_a_page_to_fetch_says_so(tmp_path: Path, web: ScrapyWeb) -> None:
    started = {"page/0": "odd/2"}
    assert "opicflow: the crawl is recorded in" in ended(changed_spider(tmp_path, web, started))
    err = ended(changed_spider(tmp_path, web, started))
    assert "has fetched no page: all that the spider wants were read before (1), and none of them is due" in err


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("OPICFLOW_FOLDER=file", "/file/web: Not a directory: name a folder that can be written to in OPICFLOW_FOLDER"),
        ("OPICFLOW_FOLDER=damaged", "/damaged/web: its state.json was damaged: restore the folder, or start again"),
        ("OPICFLOW_FOLDER=", "OPICFLOW_FOLDER is empty: name the folder of the frontiers"),
        ("OPICFLOW_FOLDR=crawl", "OPICFLOW_FOLDR: no setting of opicflow: did you mean OPICFLOW_FOLDER?"),
        ("OPICFLOW_BROKERS=a:b:c", "brokers a:b:c: give HOST:PORT, separated by commas"),
        ("OPICFLOW_PROPERTIES=none", "/none: No such file or directory: name a properties file"),
        ("OPICFLOW_PREFIX=a b", "OPICFLOW_PREFIX: 'a b' cannot begin the name of a topic"),
        ("OPICFLOW_BANDWITH=9", "OPICFLOW_BANDWITH: no setting of opicflow: did you mean OPICFLOW_BANDWIDTH?"),
        ("OPICFLOW_BANDWIDTH=many", "OPICFLOW_BANDWIDTH: 'many' is not a number"),
        ("OPICFLOW_DISCOVERY_SHARE=2", "OPICFLOW_DISCOVERY_SHARE = 2: give a number from 0 to 1, or auto"),
    ],
)
def test_a_wrong_setting_ends_a_crawl_before_it_begins_in_a_line(
    tmp_path: Path, web: ScrapyWeb, option: str, line: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "damaged" / "web").mkdir(parents=True)
    (tmp_path / "damaged" / "web" / "state.json").write_text("{}")
    brokers = () if "BROKERS" in option else ("OPICFLOW_BROKERS=127.0.0.1:1",)
    process = spider(tmp_path, web, option, *brokers)
    _, err = process.communicate(timeout=120)
    (said,) = [text for text in err.splitlines() if "ERROR" in text]
    assert "opicflow: the crawl cannot begin: " in said and line in said, err
    assert process.returncode == 1 and not web.fetched and "Traceback" not in err
    assert list((tmp_path / "damaged" / "web" / "inbox").glob("*")) == []


def test_settings_of_the_command_line_are_those_of_a_crawl(tmp_path: Path, web: ScrapyWeb) -> None:
    """They also say which URLs are one page: here all with a query are the page without."""
    numbers = ("OPICFLOW_BANDWIDTH=77", "OPICFLOW_DOMAIN_FETCHES=9", "OPICFLOW_LONGEST_INTERVAL=5")
    rules = ("OPICFLOW_CATEGORY=*.pdf", "OPICFLOW_DROP_PARAMETERS=sid")
    more = 'yield response.follow(f"{link.url}?sid={id(link)}", self.parse)'
    queries = {"self.parse)": f"self.parse)\n            {more}"}
    ended(changed_spider(tmp_path, web, queries, *numbers, *rules, "CLOSESPIDER_PAGECOUNT=30"))
    with StateFolder.locked(tmp_path / "opicflow" / "web", create=False) as folder:
        state = folder.read()
    assert state is not None
    refresh = LedgerConfig.from_json(state.ledger).refresh
    assert refresh.bandwidth_per_day == 77 and refresh.domain_fetches_per_day == 9
    assert refresh.longest_interval_days == 5 and state.last_rules.categories.patterns == ("*.pdf",)
    fetched = Counter(path.partition("?")[0] for path in pages(web.fetched))
    assert len(fetched) >= 25 and max(fetched.values()) == 1, "each page once, whatever its query"


def test_the_settings_in_the_guide_are_taken(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(SETTINGS, names)
    settings = BaseSettings({**names["custom_settings"], "OPICFLOW_FOLDER": str(tmp_path)})
    ledger, rules = ledger_and_rules(recorder_config(settings, "web").settings)
    assert ledger is not None and rules is not None
    assert ledger.refresh.bandwidth_per_day == 5000 and ledger.refresh.domain_fetches_per_day == 500
    assert "utm_*" in rules.urls.drop_parameters and len(rules.categories.patterns) == 2


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("OPICFLOW_BANDWIDTH", "-4", "OPICFLOW_BANDWIDTH = -4: give a number from "),
        ("OPICFLOW_LONGEST_INTERVAL", 0, "OPICFLOW_LONGEST_INTERVAL = 0: give a number from "),
        ("OPICFLOW_HOST_FETCHES", 0.0, "OPICFLOW_HOST_FETCHES = 0: give a number from "),
        ("OPICFLOW_REFRESH_STRATEGY", "none", "OPICFLOW_REFRESH_STRATEGY = 'none': give one of thesis, "),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_name_of_its_setting(name: str, value: object, line: str) -> None:
    config = recorder_config(BaseSettings({name: value, "OPICFLOW_FOLDER": "crawl"}), "web")
    with pytest.raises(ConfigRefused, match=f"^{line}"):
        ledger_and_rules(config.settings)


def test_what_comes_from_scrapys_cache_alone_is_no_visit(tmp_path: Path, web: ScrapyWeb) -> None:
    cache = ("HTTPCACHE_ENABLED=1", f"HTTPCACHE_DIR={tmp_path / 'cache'}", "CLOSESPIDER_PAGECOUNT=30")
    ended(spider(tmp_path / "a", web, *cache))
    fetched = len(web.fetched)
    ended(spider(tmp_path / "b", web, *cache, "HTTPCACHE_IGNORE_MISSING=1"))
    assert len(web.fetched) == fetched and len(visited(tmp_path / "a")) >= 30
    assert {event.get("failure") for event in visited(tmp_path / "b")} <= {"robots"}


def test_commands_that_try_a_spider_record_nothing(tmp_path: Path, web: ScrapyWeb) -> None:
    addons = 'ADDONS={"opicflow.pipelines.crawl.scrapy.Addon":500}'
    command = [sys.executable, "-m", "scrapy", "fetch", "-s", addons, f"{web.root}/page/0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Page 0" in done.stdout and not (tmp_path / "opicflow").exists()


def test_a_host_that_is_busy_rests_as_long_as_it_says(tmp_path: Path, web: ScrapyWeb) -> None:
    """Then the page is fetched again, and nothing in between."""
    web.busy_number, web.busy_seconds = 4, 3
    ended(spider(tmp_path, web, "CLOSESPIDER_PAGECOUNT=12", "CONCURRENT_REQUESTS=1"))
    assert web.fetched[4] == web.fetched[3] and web.seconds[4] - web.seconds[3] >= 2.9
    assert len(visited(tmp_path)) >= 10


@pytest.mark.slow
def test_a_recorder_that_is_behind_lets_the_crawl_wait_and_nothing_is_lost(tmp_path: Path, web: ScrapyWeb) -> None:
    process = changed_spider(
        tmp_path, web, {"import scrapy\n": f"import scrapy\n{SMALL_INBOX}\n"}, "CLOSESPIDER_PAGECOUNT=150"
    )
    assert process.stderr is not None
    assert any("the crawl waits: its recorder is behind by " in line for line in process.stderr)
    fetched = len(web.fetched)
    for pid in recorders(process):
        os.kill(pid, signal.SIGCONT)
    assert "opicflow: the crawl goes on" in ended(process)
    recorded = {str(event["url"]).removeprefix(web.root) for event in visited(tmp_path)}
    assert fetched < 100 and set(pages(web.fetched)) <= recorded and len(recorded) >= 150


@pytest.mark.slow
def test_a_crawl_without_a_recorder_ends_when_its_inbox_is_full_and_the_next_one_records_its_visits(
    tmp_path: Path, web: ScrapyWeb
) -> None:
    err = ended(changed_spider(tmp_path, web, {"import scrapy\n": f"import scrapy\n{NO_RECORDER}\n"}))
    assert "the recorder is not started again" in err
    assert err.count("opicflow: the crawl ends: no recorder takes the visits that wait") == 1
    first = set(pages(web.fetched))
    assert len(first) < PAGES // 2
    ended(spider(tmp_path, web, "CLOSESPIDER_PAGECOUNT=20"))
    assert first <= {str(event["url"]).removeprefix(web.root) for event in visited(tmp_path)}


@pytest.mark.slow
def test_a_crawl_that_finds_no_room_ends_in_good_order(tmp_path: Path, web: ScrapyWeb) -> None:
    process = changed_spider(
        tmp_path, web, {"import scrapy\n": f"import scrapy\n{NO_ROOM}\n"}, "CLOSESPIDER_PAGECOUNT=400"
    )
    err = ended(process)
    assert err.count("opicflow: the crawl ends: ") == 1 and "make room" in err
    assert "'finish_reason': 'opicflow_cannot_write'" in err and len(pages(web.fetched)) < 150


@pytest.mark.slow
def test_a_crawl_that_is_interrupted_twice_leaves_no_process_and_loses_no_visit(tmp_path: Path, web: ScrapyWeb) -> None:
    process = spider(tmp_path, web, new_session=True)
    assert wait_until(lambda: len(pages(web.fetched)) >= 100, 120)
    for _ in range(2):  # as Ctrl-C does: all processes of the terminal get it
        os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)  # the recorder writes to the same pipe: it has ended, too
    assert wait_until(lambda: is_free(tmp_path / "opicflow" / "web"), 60)
    recorded = {str(event["url"]).removeprefix(web.root) for event in visited(tmp_path)}
    assert len([path for path in set(pages(web.fetched)) if path not in recorded]) <= 16  # those under way


@pytest.mark.slow
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


# -- what else a project may have --------------------------------------------------------------------------------------


def visited(folder: Path, name: str = "web") -> list[dict[str, object]]:
    log = folder / "opicflow" / name / "visits.jsonl"
    return [event for line in log.read_bytes().splitlines() if "kind" not in (event := json.loads(line))]


@pytest.mark.slow
def test_with_a_jobdir_a_crawl_that_is_stopped_goes_on_and_reads_each_page_once(tmp_path: Path, web: ScrapyWeb) -> None:
    jobdir = f"JOBDIR={tmp_path / 'job'}"
    ended(spider(tmp_path, web, jobdir, "CLOSESPIDER_PAGECOUNT=60"))
    first = Counter(pages(web.fetched))
    assert 60 <= len(first) < PAGES // 2
    ended(spider(tmp_path, web, jobdir, "CLOSESPIDER_PAGECOUNT=120"))
    both = Counter(pages(web.fetched))
    assert len(both) >= 150 and max(both.values()) == 1
    assert {web.root + path for path in both} <= {str(event["url"]) for event in visited(tmp_path)}


@pytest.mark.slow
def test_several_spiders_of_one_process_have_frontiers_of_their_own(tmp_path: Path, web: ScrapyWeb) -> None:
    code = SPIDER.replace("https://example.org/", f"{web.root}/page/0")
    (tmp_path / "two.py").write_text(
        f"""{code}

class Other(Web):
    name = "other"
    start_urls = ["{web.root}/page/1"]

    def parse(self, response):
        assert gc.get_freeze_count()
        yield from super().parse(response)


import gc

from scrapy.crawler import CrawlerProcess

process = CrawlerProcess({{"CLOSESPIDER_PAGECOUNT": 40, "RETRY_TIMES": 1}})
process.crawl(Web)
process.crawl(Other)
process.start()
assert not gc.get_freeze_count()
"""
    )
    done = subprocess.run([sys.executable, "two.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    # Scrapy's HTTP client raises one if the process stood still for a second while the client closed its connections.
    tracebacks = done.stderr.count("Traceback") - done.stderr.count("twisted.internet.defer.AlreadyCalledError")
    assert done.returncode == 0 and not tracebacks, done.stderr[-3000:]
    for name, start in (("web", "/page/0"), ("other", "/page/1")):
        urls = Counter(str(event["url"]) for event in visited(tmp_path, name))
        assert len(urls) >= 40 and max(urls.values()) == 1 and web.root + start in urls


@pytest.mark.slow
def test_pages_that_scrapy_has_in_its_cache_are_asked_for_by_their_etags(tmp_path: Path, web: ScrapyWeb) -> None:
    cache = ("HTTPCACHE_ENABLED=1", "HTTPCACHE_POLICY=scrapy.extensions.httpcache.RFC2616Policy")
    more = ("CLOSESPIDER_PAGECOUNT=40", f"HTTPCACHE_DIR={tmp_path / 'cache'}")
    ended(spider(tmp_path / "a", web, *cache, *more))
    ended(spider(tmp_path / "b", web, *cache, *more))
    assert web.not_modified, "the second crawl knows the pages"
    first, second = ({event["url"]: event for event in visited(tmp_path / name)} for name in "ab")
    for path in web.not_modified[:10]:  # Scrapy gives the spider the content that it has
        assert second[web.root + path]["digest"] == first[web.root + path]["digest"]
        assert second[web.root + path]["links"] == first[web.root + path]["links"]


def test_a_spider_that_asks_by_others_records_what_was_not_modified(tmp_path: Path, web: ScrapyWeb) -> None:
    etag = hashlib.sha1(web.body("/page/0"), usedforsecurity=False).hexdigest()
    code = SPIDER.replace("https://example.org/", f"{web.root}/page/0")
    asking = f"""{code}
    handle_httpstatus_list = [304]

    async def start(self):
        yield scrapy.Request("{web.root}/page/0", headers={{"If-None-Match": '"{etag}"'}})
"""
    (tmp_path / "asking.py").write_text(asking)
    command = [sys.executable, "-m", "scrapy", "runspider", "asking.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-3000:]
    (event,) = visited(tmp_path)
    assert event["status"] == 304 and "links" not in event and "digest" not in event


def test_a_spider_tells_the_quality_of_pages_before_and_after_it_has_read_them(tmp_path: Path, web: ScrapyWeb) -> None:
    code = SPIDER.replace("https://example.org/", f"{web.root}/page/0").partition("    def parse")[0]
    (tmp_path / "telling.py").write_text(
        f"""{code}
    def parse(self, response):
        response.meta["opicflow_quality"] = 0.25
        for number, quality in ((1, 0.5), (2, None), (3, "good")):
            yield response.follow(f"/page/{{number}}", self.keep, meta={{"opicflow_quality": quality}})

    def keep(self, response):
        yield {{"url": response.url}}
"""
    )
    command = [sys.executable, "-m", "scrapy", "runspider", "telling.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-3000:]
    assert "opicflow_quality of" in done.stderr and "/page/3 is no number from 0 to 1: 'good'" in done.stderr
    told = {
        (str(event["url"]).rpartition("/")[2], event.get("kind", "visit"), event["quality"])
        for event in events(tmp_path)
        if "quality" in event
    }
    assert told == {("0", "announce", 0.25), ("1", "announce", 0.5), ("1", "visit", 0.5)}
    shown = output_of("show", f"{web.root}/page/0", "--state", tmp_path / "opicflow" / "web", "--json")
    assert json.loads(shown)["quality"] == pytest.approx(0.25, abs=0.005)


@pytest.mark.slow
def test_slow_pages_are_recorded_or_fail_by_their_name(tmp_path: Path, web: ScrapyWeb) -> None:
    web.slow_seconds = 60.0
    process = spider(tmp_path, web, "DOWNLOAD_TIMEOUT=10", "CLOSESPIDER_PAGECOUNT=60", "RETRY_ENABLED=0")
    process.communicate(timeout=300)  # Scrapy logs the traceback of a time-out
    assert process.returncode == 0
    outcomes = {str(event["url"]).removeprefix(web.root): event for event in visited(tmp_path)}
    slow = [path for path in pages(list(outcomes)) if int(path.rpartition("/")[2]) % 7 == 3]
    assert slow and {"failure" in outcomes[path] for path in slow} == {True}
    assert sum("status" in outcomes[path] for path in pages(list(outcomes))) >= 40


def test_visits_reach_kafka_and_what_a_broker_missed_is_sent_by_the_next_crawl(
    tmp_path: Path, web: ScrapyWeb, kafka: LocalKafka, topic_prefix: str
) -> None:
    connection = create_topics(kafka.brokers, topic_prefix, event_partitions=2)
    none = ("OPICFLOW_BROKERS=127.0.0.1:1", f"OPICFLOW_PREFIX={topic_prefix}", "CLOSESPIDER_PAGECOUNT=20")
    err = ended(spider(tmp_path, web, *none))
    assert "visits wait in the log" in err and "the next crawl sends them" in err
    there = (f"OPICFLOW_BROKERS={kafka.brokers}", f"OPICFLOW_PREFIX={topic_prefix}", "CLOSESPIDER_PAGECOUNT=20")
    assert "visits wait" not in ended(spider(tmp_path, web, *there))
    log = tmp_path / "opicflow" / "web" / "visits.jsonl"
    logged = log.read_bytes().splitlines()
    topic = f"{topic_prefix}crawl-events"
    sent: list[bytes] = []
    for found in resolve(connection, topic):
        with closing(connection.consumer()) as consumer:
            one = TopicPartition(topic, found.partition)
            consumer.assign([one])
            consumer.seek_to_beginning(one)
            while consumer.position(one) < found.end:
                for parts in consumer.poll(500).values():
                    sent += [record.value or b"" for part in parts for record in part.records()]
    assert sorted(sent) == sorted(logged) and len(logged) >= 40
