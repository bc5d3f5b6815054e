"""The report loads nothing, begins with the answer, and runs no code that a crawled page could inject."""

from __future__ import annotations

import dataclasses
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from opicflow.pipelines.serve import charts
from opicflow.pipelines.serve.renderer import render_report
from opicflow.pipelines.serve.view import Bin, Moment, RejectExample, Series, View
from serve.test_web_app import HOSTILE, HOSTILE_URLS
from support.commands import output_of
from support.paths import TOP
from support.views import EMPTY, SMALL, hostile_view, table_of

LOG = TOP / "examples" / "crawl.jsonl.gz"


class Parsed(HTMLParser):
    """A parsed report. Parsing asserts the properties of every report."""

    def __init__(self, view: View) -> None:
        super().__init__()
        page = render_report(view)
        page.encode("utf-8")
        assert all(c.isprintable() or c == "\n" for c in page)
        assert page.count("<meta http-equiv") == 1 and "default-src 'none'" in page and "unsafe" not in page
        self.opened: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.feed(page)
        self.close()
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        assert tag not in ("script", "link", "img", "iframe", "form", "input", "base", "object")
        assert not any(name.startswith("on") or name in ("style", "src", "srcset", "action") for name in held)
        for name in {"x", "y", "width", "height", "d"} & set(held):
            assert "nan" not in held[name] and "inf" not in held[name], held
        if "href" in held:
            assert tag == "a" and held["href"].startswith(("http://", "https://"))
            assert held["rel"] == "noopener noreferrer nofollow"
            self.links.append(held["href"])
        if tag not in ("meta", "br"):
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.opened and self.opened[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


texts = st.one_of(st.text(max_size=30), st.sampled_from([HOSTILE, *HOSTILE_URLS[:-1]]))
urls = st.text(max_size=20).map(lambda text: "https://a.example/" + ascii(text)[1:-1])
floats = st.one_of(st.floats(0, 1), st.floats(), st.just(0.0))
counts = st.one_of(st.integers(0, 10_000), st.integers(0, 2**60))


@st.composite
def views(draw: st.DrawFn) -> View:
    table = table_of(draw(st.lists(urls, max_size=4)))
    for name, values in (
        ("importance", st.floats(0, 1)),
        ("score", st.floats(0, 1e9)),
        ("trend_per_day", st.floats(-1, 1)),
    ):
        table.columns[name][:] = draw(st.lists(values, min_size=len(table), max_size=len(table)))
    pages = [int(page) for page in table.ids]
    moments = st.builds(
        Moment,
        time_ms=st.integers(-(2**50), 2**62),
        visits=counts,
        pages=counts,
        pages_read=counts,
        idle_share=floats,
        top=st.dictionaries(st.sampled_from(pages or [1]), floats, max_size=4),
    )
    return View(
        title=draw(texts),
        source=draw(texts),
        version="1",
        table=table,
        counts=draw(st.one_of(st.just({}), st.just(SMALL.counts))),
        certificate=draw(st.one_of(st.none(), floats)),
        history=draw(st.lists(moments, max_size=4)),
        idle=draw(st.dictionaries(texts, floats, max_size=2)),
        rejects=draw(st.dictionaries(texts, st.integers(1, 10**6), max_size=2)),
        examples=draw(st.lists(st.builds(RejectExample, texts, texts, texts, texts), max_size=2)),
        notes=draw(st.lists(texts, max_size=2)),
        options=draw(st.lists(st.tuples(texts, texts), max_size=2)),
    )


@settings(deadline=None, max_examples=40, phases=[Phase.explicit, Phase.generate])
@given(views())
def test_any_report_is_a_balanced_page_that_runs_and_loads_nothing(view: View) -> None:
    Parsed(view)


def test_hostile_text_is_shown_and_never_becomes_markup() -> None:
    page = Parsed(hostile_view(HOSTILE_URLS, HOSTILE))
    assert page.text.count("<script>window.hacked=1</script>") >= 5
    assert not any(link.startswith("javascript") or "\u202e" in link for link in page.links)


def test_a_report_of_nothing_says_so() -> None:
    page = Parsed(EMPTY)
    assert "There are no pages yet" in page.text and "There is no plan" in page.text


def test_it_begins_with_the_answer_and_explains_its_words() -> None:
    text = Parsed(SMALL).text
    order = ["crawl.jsonl", "The books are right", "What matters", "How sure", "What next", "The most important pages"]
    order += ["How the bandwidth is used", "When pages are due", "Rejects: what could not be used", "The words"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    for words in ("unchanged", "idle cash", "not modified", "opicflow 1", "2026-05-09", "history: certified", "0.01%"):
        assert words in text, words


def test_a_chart_has_an_axis_of_time_where_times_are_known() -> None:
    assert "05-05" in Parsed(SMALL).texts
    timeless = dataclasses.replace(SMALL, history=[one._replace(time_ms=0) for one in SMALL.history])
    assert "05-05" not in Parsed(timeless).texts and "visits" in Parsed(timeless).texts


def test_the_same_log_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "crawl.jsonl.gz").write_bytes(LOG.read_bytes())
        monkeypatch.chdir(folder)
        output_of("replay", "crawl.jsonl.gz", "--report", "report.html", "--top", "0", "--quiet")
        made.append((folder / "report.html").read_text("utf-8"))
    assert made[0] == made[1]
    assert "<title>crawl.jsonl.gz</title>" in made[0]
    assert "0.0019%" in made[0] and "overdue" in made[0] and "All orders" not in made[0]


# -- charts

LABEL = re.compile(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)" class="([^"]*)">')


@pytest.mark.parametrize("most", [1, 3, 7, 99, 1_000, 123_456, 10**9, 10**17, 10**40])
@pytest.mark.parametrize("is_time", [False, True])
def test_labels_of_an_axis_are_few_and_apart(most: int, is_time: bool) -> None:
    begin, span = (1_700_000_000_000 if is_time else 0), min(most, 10**12)
    points = [(begin, 0.0), (begin + span // 2, most / 2), (begin + span, float(most))]
    labels = LABEL.findall(charts.line_chart("a", [Series("one", points)], is_time))
    xs = [float(x) for x, _, anchor, _ in labels if anchor == "middle"]
    ys = [float(y) for _, y, anchor, _ in labels if anchor == "end" and y != "199.0"]
    assert all(b - a >= 40 for a, b in pairwise(xs)) and all(a - b >= 20 for a, b in pairwise(ys))
    assert len(ys) >= 2


@pytest.mark.parametrize(
    ("hours", "label"), [((30, 34), "06:00"), ((30, 53), "01-02 06:00"), ((30, 60), "01-02 06:00"), ((30, 99), "01-03")]
)
def test_hours_of_several_days_have_their_date(hours: tuple[int, int], label: str) -> None:
    points = [(3_600_000.0 * hour, 1.0) for hour in hours]
    drawn = charts.line_chart("a", [Series("one", points)], True)
    assert re.findall(r'text-anchor="middle" class="tick">([^<]*)<', drawn)[0] == label


def test_a_line_has_a_gap_where_its_value_is_not_known() -> None:
    def path(values: list[float]) -> str:
        drawn = charts.line_chart("a", [Series("one", list(enumerate(values)))], False)
        return re.findall(r'class="line s0"><title>one</title><path d="([^"]*)"', drawn)[0]

    assert path([1, 2, 3]).count("M") == 1
    gaps = path([1, 2, math.nan, 3, math.inf, 4])
    assert gaps.count("M") == 3 and gaps.count("h4") == 2  # a point between gaps is a dash


def test_bars_grow_with_pages() -> None:
    drawn = charts.histogram("a", [Bin(0.1, 1, 300), Bin(1, 10, 49), Bin(10, 100, 1), Bin(100, 1000, 0)])
    heights = [float(height) for height in re.findall(r' height="([\d.]+)"', drawn)]
    assert len(heights) == 3 and heights == sorted(heights, reverse=True) and heights[-1] > 5


def test_ends_of_lines_that_meet_have_labels_apart() -> None:
    series = [Series(str(k), [(0, 1.0), (1, 2.0)]) for k in range(10)]
    labels = LABEL.findall(charts.line_chart("a", series, False, are_numbered=True))
    heights = sorted(float(y) for _, y, _, kind in labels if kind.startswith("end"))
    assert len(heights) == 10 and float(np.diff(heights).min()) >= 11.9
