"""The recorder beside a crawl takes every report, whoever is killed, and never outlives its crawl."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from scrapy import Request, Spider

from deploy.services.processes import wait_until
from opicflow.pipelines.crawl.frontier import Frontier
from opicflow.pipelines.crawl.log import ANNOUNCEMENT, REQUESTS_NAME, VISIT, CrawlRecord, InboxWriter
from opicflow.pipelines.crawl.recorder.protocol import RecorderConfig
from opicflow.pipelines.crawl.scrapy import recorder_process
from opicflow.pipelines.crawl.scrapy.recorder_process import RecorderProcess, RecorderRefused
from opicflow.pipelines.crawl.scrapy.stored_requests import RequestsInUse, StoredRequests
from support.paths import TOP
from support.scrapy_web import is_free

TIME_MS = 1_800_000_000_000
PATHS = os.pathsep.join((str(TOP), str(TOP / "tests")))


def url(number: int) -> str:
    return f"https://a.example/{number}"


def visit(number: int, *links: int) -> CrawlRecord:
    event = {"url": url(number), "status": 200, "content_type": "text/html", "fetched_at": TIME_MS + number}
    return CrawlRecord(VISIT, json.dumps(event).encode(), "".join(f'<a href="{link}">' for link in links).encode())


def logged(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "visits.jsonl").read_bytes().splitlines()]


class Crawl:
    """A crawl of a folder that wants 40 pages, without Scrapy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.counts, self.is_over = folder, Counter[str](), False
        self.requests = StoredRequests(folder / REQUESTS_NAME, Spider("web"))
        self.inbox = InboxWriter(folder)
        self.recorder = RecorderProcess(
            RecorderConfig(str(folder)), lambda name, count: self.counts.update({name: count})
        )
        for number in range(40):
            if url(number) not in self.requests:
                assert self.requests.add(url(number), Request(url(number)))
                self.requests.write()

    @property
    def pid(self) -> int:
        return self.recorder._process.pid

    def chosen(self, pages: int) -> list[str]:
        self.recorder.ask(pages, [], 100, {})
        return self.answer()

    def answer(self) -> list[str]:
        """Return the pages that were requested, however slow the machine is."""
        answers: list[list[str] | None] = []

        def has_come() -> bool:
            answers.append(self.recorder.answer(waits=True))
            return answers[-1] is not None

        assert wait_until(has_come, 120) and not self.recorder.is_asked
        return answers[-1] or []

    def wait_until_ready(self) -> None:
        assert wait_until(self.recorder.is_ready, 60)

    def end(self) -> bool:
        self.recorder.begin_to_end()
        assert wait_until(lambda: self.recorder.has_saved() is not None, 60)
        is_over = bool(self.recorder.has_saved())
        self.inbox.close(all_are_taken=is_over)
        self.requests.close()
        self.is_over = True
        return is_over

    def close(self) -> None:
        if not self.is_over:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)  # it may stand still
            self.recorder._stop()
            self.requests.close()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], Crawl]]:
    begun: list[Crawl] = []

    def begin() -> Crawl:
        begun.append(Crawl(tmp_path))
        return begun[-1]

    yield begin
    for crawl in begun:
        crawl.close()


def test_pages_are_chosen_after_all_that_was_reported_and_only_wanted_ones(begin: Callable[[], Crawl]) -> None:
    crawl = begin()
    crawl.wait_until_ready()
    crawl.inbox.append(CrawlRecord(ANNOUNCEMENT, json.dumps({url(0): None}).encode()))
    assert crawl.chosen(5) == [url(0)]
    crawl.inbox.append(visit(0, 7, 8, 100))
    assert sorted(crawl.chosen(5)) == [url(7), url(8)]
    assert crawl.end() and crawl.counts == {"opicflow/visits": 1}
    assert [event["url"] for event in logged(crawl.folder)] == [url(0), url(0)]
    assert logged(crawl.folder)[1]["links"] == [url(7), url(8), url(100)]
    assert list((crawl.folder / "inbox").iterdir()) == []


@pytest.mark.slow
def test_pages_are_announced_with_their_qualities(begin: Callable[[], Crawl], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    crawl = begin()
    for pages in ({url(0): 0.5}, {url(1): None, "https://": 0.5, url(2): 0.25}):
        crawl.inbox.append(CrawlRecord(ANNOUNCEMENT, json.dumps(pages).encode()))
    assert sorted(crawl.chosen(5)) == [url(0), url(1), url(2)]
    assert crawl.end() and caplog.text.count("https:// is not announced: ") == 1
    told = [(event["url"], event.get("quality")) for event in logged(crawl.folder)]
    assert told == [(url(0), 0.5), (url(1), None), (url(2), 0.25)]


def test_a_report_that_is_no_event_is_refused_alone(
    begin: Callable[[], Crawl], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)  # a command that was tested before may have changed it
    crawl = begin()
    for record in (visit(0), CrawlRecord(VISIT, b'{"url":"https://","status":200}'), visit(1)):
        crawl.inbox.append(record)
    assert crawl.end() and crawl.counts == {"opicflow/visits": 2, "opicflow/visits_refused": 1}
    assert "the visit of https:// is not recorded" in caplog.text
    assert [event["url"] for event in logged(crawl.folder)] == [url(0), url(1)]


def test_a_recorder_that_is_killed_is_started_again_and_loses_nothing(
    begin: Callable[[], Crawl], caplog: pytest.LogCaptureFixture
) -> None:
    crawl = begin()
    crawl.inbox.append(visit(0, 1, 2))
    assert sorted(crawl.chosen(2)) == [url(1), url(2)]
    os.kill(crawl.pid, signal.SIGKILL)
    crawl.inbox.append(visit(1, 3))
    assert set(crawl.chosen(2)) == {url(2), url(3)}  # a new one does not know which were given out
    os.kill(crawl.pid, signal.SIGSTOP)
    crawl.inbox.append(visit(2))
    crawl.recorder.ask(1, [], 100, {})
    os.kill(crawl.pid, signal.SIGKILL)
    assert crawl.end() and "the recorder was ended by signal 9: the recorder is started again" in caplog.text
    assert [event["url"] for event in logged(crawl.folder)] == [url(0), url(1), url(2)]


def test_a_recorder_that_stands_still_keeps_no_crawl_from_being_interrupted(
    begin: Callable[[], Crawl], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(recorder_process, "_LONGEST_WAIT_SECONDS", 0.1)
    crawl = begin()
    crawl.wait_until_ready()
    crawl.inbox.append(visit(0, 1))
    os.kill(crawl.pid, signal.SIGSTOP)
    crawl.recorder.ask(1, [], 100, {})
    for _ in range(3):
        assert crawl.recorder.answer(waits=True) is None
    assert caplog.text.count(f"the recorder, process {crawl.pid}, has not answered") == 1
    crawl.recorder.begin_to_end()
    assert crawl.recorder.has_saved() is None
    os.kill(crawl.pid, signal.SIGCONT)
    assert crawl.end() and len(logged(crawl.folder)) == 1


def test_a_page_with_too_many_links_is_recorded_without_them(
    begin: Callable[[], Crawl], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    crawl = begin()
    crawl.inbox.append(visit(0, *range(100_001)))
    crawl.inbox.append(visit(1, 2))
    assert crawl.end() and crawl.counts == {"opicflow/visits": 2}
    assert caplog.text.count("the links of https://a.example/0 are not recorded: the page has more than 100000") == 1
    first, second = logged(crawl.folder)
    assert first["status"] == 200 and "digest" in first and "links" not in first and second["links"] == [url(2)]


def test_a_page_that_leads_to_no_page_is_recorded_as_failed(
    begin: Callable[[], Crawl], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    crawl = begin()
    event = {"url": url(0) + "/" * 9000, "status": 200, "redirects": [url(1), url(2)], "fetched_at": TIME_MS}
    crawl.inbox.append(CrawlRecord(VISIT, json.dumps(event).encode(), b"<p>"))
    assert crawl.end() and crawl.counts == {"opicflow/visits": 1}
    assert f"{url(1)} leads to no page, and is recorded as failed: it is longer than" in caplog.text
    assert logged(crawl.folder) == [{"url": url(1), "failure": "NotAPage", "fetched_at": TIME_MS}]


@pytest.mark.slow
def test_a_crawl_whose_recorder_never_lives_goes_on_and_the_next_crawl_records_its_visits(
    begin: Callable[[], Crawl], caplog: pytest.LogCaptureFixture
) -> None:
    crawl = begin()
    crawl.wait_until_ready()
    while "not started again" not in caplog.text:
        os.kill(crawl.pid, signal.SIGKILL)
        crawl.recorder.ask(1, [], 100, {})
        crawl.recorder.answer(waits=True)
    crawl.inbox.append(visit(0, 1))
    assert crawl.chosen(3) == [] and not crawl.end()
    after = begin()
    assert after.chosen(3) == [url(1)] and after.end()
    assert [event["url"] for event in logged(after.folder)] == [url(0)]
    assert list((after.folder / "inbox").iterdir()) == []


def test_signals_that_end_a_crawl_do_not_end_its_recorder(begin: Callable[[], Crawl]) -> None:
    crawl = begin()
    crawl.inbox.append(visit(0, 1))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(crawl.pid, number)
        assert crawl.chosen(3) is not None
    assert crawl.recorder._starts == 1 and crawl.end()
    assert len(logged(crawl.folder)) == 1


def test_a_recorder_whose_crawl_is_killed_takes_the_rest_and_ends(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from scrapy import Spider
from test_recorder_process import Crawl, visit
crawl = Crawl(Path({str(tmp_path)!r}))
crawl.wait_until_ready()
crawl.inbox.append(visit(0, 1))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, env={**os.environ, "PYTHONPATH": PATHS}
    )
    assert done.returncode == -signal.SIGKILL
    assert wait_until(lambda: is_free(tmp_path), 60)
    assert [event["url"] for event in logged(tmp_path)] == [url(0)]


def test_a_new_crawl_waits_for_the_recorder_of_one_that_was_killed(tmp_path: Path, begin: Callable[[], Crawl]) -> None:
    with closing(Frontier.open(tmp_path, lambda: TIME_MS / 1000)):
        crawl = begin()
        crawl.inbox.append(visit(0, 1))
        crawl.recorder.ask(1, [], 100, {})
        assert crawl.recorder.answer(waits=False) is None
    assert crawl.answer() == [url(1)]


def test_two_crawls_do_not_share_a_folder(begin: Callable[[], Crawl]) -> None:
    begin()
    with pytest.raises(RequestsInUse, match="in use by another crawl: wait for it"):
        begin()


def test_a_folder_that_is_damaged_is_refused_with_its_reason(tmp_path: Path, begin: Callable[[], Crawl]) -> None:
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(RecorderRefused, match=r"state\.json"):
        begin().wait_until_ready()


@pytest.mark.parametrize("program", [None, "/nowhere/python"])
def test_a_crawl_whose_recorder_cannot_be_started_is_refused_in_one_line(
    program: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RecorderRefused, match=r"cannot be started .*: run Scrapy with the Python that has opicflow"):
        RecorderProcess(RecorderConfig(str(tmp_path)), lambda name, count: None)


def test_a_crawl_goes_on_without_a_recorder_that_cannot_be_started_again(
    begin: Callable[[], Crawl], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    crawl = begin()
    crawl.wait_until_ready()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # such as a Python that was upgraded meanwhile
    os.kill(crawl.pid, signal.SIGKILL)
    assert wait_until(crawl.recorder.progress, 60)
    assert crawl.recorder.is_given_up and crawl.end() is False
    assert "cannot be started" in caplog.text and "the recorder is not started again" in caplog.text


def test_a_recorder_that_does_not_end_is_killed(begin: Callable[[], Crawl], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_process, "_MOST_SECONDS_TO_END", 0.1)
    crawl = begin()
    crawl.wait_until_ready()
    os.kill(crawl.pid, signal.SIGSTOP)
    crawl.recorder._stop()
    assert crawl.recorder._process.returncode == -signal.SIGKILL
