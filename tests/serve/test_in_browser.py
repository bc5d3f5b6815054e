"""The pages in a real browser: the first view, search as one types, hostile URLs, tokens, a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.serve.results_source import ResultsSource
from opicflow.pipelines.serve.sources import StateSource
from opicflow.pipelines.stages.settings import LedgerOptions
from serve.test_web_app import HOSTILE, HOSTILE_URLS, PAGES, TOKEN
from support.browser import Browser, browser, require_browser
from support.logs import WebLog, json_line, run
from support.views import EMPTY, NOW, SMALL, GivenStream, GivenView, hostile_view, live_view, served, table_of, view_of

TEXT = "return document.body.innerText"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    require_browser()
    with browser() as opened:
        yield opened


def test_the_first_screen_begins_with_the_answer(window: Browser) -> None:
    with served(GivenView()) as at:
        window.resize(1600)
        window.open(at)
        text = window.run(TEXT)
        places = [
            text.index(words)
            for words in ("The books are right", "What matters", "How sure", "What next", "Rejects: what")
        ]
        assert places == sorted(places)
        above = "return document.querySelector('.answers').getBoundingClientRect().bottom"
        assert window.run(above) < 600, "the answer is seen without scrolling"
        assert window.complaints() == []


def test_numbers_are_those_of_the_reader(window: Browser) -> None:
    with served(GivenView()) as at:
        window.open(at)
        shown, expected = window.run(
            "const one = document.querySelector('data.percent');"
            "const form = new Intl.NumberFormat(navigator.languages, {style: 'percent', maximumSignificantDigits: 3});"
            "return [one.textContent, form.format(Number(one.value))]"
        )
        assert shown == expected


@pytest.mark.parametrize("kind", ["state", "results"])
def test_the_first_screen_of_a_replay_is_that_of_its_state_and_of_its_results(
    window: Browser, tmp_path: Path, kind: str
) -> None:
    log = tmp_path / "crawl.jsonl"
    log.write_bytes(b"".join(map(json_line, WebLog(power_law_web(60, 3)).crawl("random", 300).events)) + b"no json\n")
    run([log], state=tmp_path / "state", out=tmp_path / "out", counting=LedgerOptions(history="certified"))
    source = StateSource(tmp_path / "state") if kind == "state" else ResultsSource(tmp_path / "out")
    with served(source) as at:
        for width in (360, 1600):
            window.resize(width)
            window.open(at)
            text, seen = window.run(TEXT), window.run("return document.querySelectorAll('#top tbody tr').length")
            assert "Cash ✓ not one unit of cash is missing" in text and "proven: within" in text and seen == 10
            assert "the line is no JSON" in text and window.run("return document.documentElement.scrollWidth") <= width
        first = source.view().table.url(0)
        assert window.run("return document.querySelector('#top tbody th').innerText") == first
        window.open(f"{at}/search?q={first}")
        assert "Policies that hold for it" in window.run(TEXT)
        assert window.complaints() == []


@pytest.mark.parametrize("kind", ["state", "stream"])
def test_search_finds_as_one_types_and_the_keyboard_opens_it(window: Browser, kind: str) -> None:
    source = GivenView() if kind == "state" else GivenStream(live_view(SMALL))
    with served(source) as at:
        window.resize(1600)
        window.open(at)
        window.write(".search input", "host3.example/docs")
        window.until("return document.querySelectorAll('.found a').length >= 5")
        first = window.run("return document.querySelector('.found a').textContent")
        assert "host3.example/docs/" in first
        window.write(".search input", "\ue015")  # arrow down
        window.until("return document.activeElement.closest('.found') !== null")
        if isinstance(source, GivenStream):  # the page changes, and the keyboard stays where it is
            source.show(live_view(SMALL, kept="Something else is kept."))
            window.until("return document.body.innerText.includes('Something else is kept.')")
            assert window.run("return document.activeElement.matches('.found a:first-child')")
        window.write(".found a:first-child", "\ue007")  # enter
        window.until("return document.querySelector('h1.url') !== null")
        assert "host3.example/docs/" in window.run("return document.querySelector('h1.url').textContent")
        window.write(".search input", "https://*.pdf")
        window.until("return document.querySelectorAll('.found a').length >= 5")
        window.write(".search input", "\ue00c")  # escape
        assert window.run("return document.querySelector('.found').hidden")
        window.write(".search input", "https://*.pdf\ue007")
        window.until("return document.querySelector('h1').textContent.startsWith('Found')")
        assert window.run(
            "return [...document.querySelectorAll('.pages tbody th a')].every(a => /pdf$/.test(a.innerText))"
        )


@pytest.mark.parametrize("width", [360, 1600])
def test_a_word_explains_itself_when_the_keyboard_is_on_it(window: Browser, width: int) -> None:
    with served(GivenView()) as at:
        window.resize(width)
        window.open(f"{at}/pages")
        shown = "return getComputedStyle(document.querySelector('thead abbr'), '::after').content"
        assert window.run(shown) == "none"
        window.run("document.querySelector('thead abbr').focus()")
        assert "attention that reaches a page" in window.run(shown)
        words = "[...document.querySelectorAll('abbr')].every(one => one.tabIndex === 0 && one.title.length > 9)"
        assert window.run(f"return {words}")
        assert window.run("return document.documentElement.scrollWidth") <= width


def test_no_script_of_a_hostile_page_runs(window: Browser) -> None:
    window.open("about:blank")
    window.complaints()  # of the pages before, whose servers have ended
    with served(GivenView(hostile_view(HOSTILE_URLS, HOSTILE))) as at:
        view = hostile_view(HOSTILE_URLS, HOSTILE)
        for path in [*PAGES, *(f"/page/{int(page):016x}" for page in view.table.ids)]:
            window.open(at + path)
            assert window.run("return window.hacked === undefined"), path
            assert [one for one in window.complaints() if "favicon" not in one] == [], path
        window.open(at)
        window.write(".search input", "a.example")
        window.until("return document.querySelectorAll('.found a').length >= 5")
        assert window.run("return window.hacked === undefined && !document.querySelector('.found script')")


def test_the_policy_refuses_a_script_that_would_have_slipped_in(window: Browser) -> None:
    """The check above can fail: a script in the page is refused, and the browser complains."""
    with served(GivenView()) as at:
        window.open(at)
        window.complaints()
        window.run(
            "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)"
        )
        assert window.run("return window.hacked === undefined")
        assert any("Content Security Policy" in one for one in window.complaints())


def test_a_state_without_pages_says_so(window: Browser) -> None:
    with served(GivenView(EMPTY)) as at:
        window.resize(360)
        for path in PAGES:
            window.open(at + path)
        window.open(at)
        assert "There are no pages yet" in window.run(TEXT)


def test_a_wrong_token_is_reported_and_the_right_one_opens(window: Browser) -> None:
    with served(GivenView(), TOKEN) as at:
        window.open(f"{at}/plan")
        window.write("input[name=token]", "wrong-wrong-wrong-wrong\ue007")
        window.until("return document.querySelector('[role=alert]') !== null")
        assert "docs" not in window.run(TEXT)
        window.write("input[name=token]", f"{TOKEN}\ue007")
        window.until("return document.body.innerText.includes('What matters')")
        window.complaints()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
def test_no_page_scrolls_sideways(window: Browser, width: int, dark: bool) -> None:
    with served(
        GivenView(hostile_view([*HOSTILE_URLS, *(SMALL.table.url(row) for row in range(40))], "long" * 300))
    ) as at:
        window.resize(width, dark=dark)
        for path in [*PAGES, f"/page/{int(SMALL.table.ids[0]):016x}", "/host/a.example", "/nothing"]:
            window.open(at + path)
            wide = window.run("return document.documentElement.scrollWidth")
            assert wide <= width, path
        ground = window.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark


def test_every_chart_has_a_table_and_every_table_that_scrolls_takes_the_keyboard(window: Browser) -> None:
    with served(GivenView()) as at:
        window.open(at)
        without = window.run(
            "return [...document.querySelectorAll('svg.chart, svg.stack')]"
            ".filter(one => !one.getAttribute('aria-label') || !one.closest('section').querySelector('table')).length"
        )
        assert without == 0 and window.run("return document.querySelectorAll('svg.chart').length") >= 3
        assert window.run("return [...document.querySelectorAll('.scroll')].every(one => one.tabIndex === 0)")


def test_text_has_contrast_in_both_themes(window: Browser) -> None:
    """Of ink, soft ink and links on the ground of cards, by the formula of WCAG 2."""
    script = """
    const style = getComputedStyle(document.documentElement);
    const light = name => {
        const hex = style.getPropertyValue(name).trim();
        const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
    const colours = ["--c0", "--c1", "--c2", "--c3", "--c4"].map(name => [name, 3]);
    return [["--ink", 4.5], ["--soft", 4.5], ["--link", 4.5], ...colours]
        .filter(([name, least]) => contrast(name, "--card") < least || contrast(name, "--ground") < least - 0.3)"""
    with served(GivenView()) as at:
        for dark in (False, True):
            window.resize(1600, dark=dark)
            window.open(at)
            assert window.run(script) == []


# -- live --------------------------------------------------------------------------------------------------------------

FIRST = "return document.querySelector('#top tbody th').textContent"


def test_a_live_page_changes_by_others_and_keeps_the_input_of_the_reader(window: Browser) -> None:
    source = GivenStream(live_view(SMALL))
    with served(source) as at:
        window.resize(1600)
        window.open(at)
        window.complaints()
        before = window.run(FIRST)
        window.run("window.same = true; document.querySelector('details').open = true")
        window.write(".search input", "unfinished wor")
        other = view_of(table_of([f"https://other.example/{k}" for k in range(50)]))
        source.show(live_view(other, problem="b:9092: no broker answers", problem_ms=1000 * NOW))
        window.until("return document.querySelector('#top tbody th').textContent.includes('other.example')")
        assert "other.example" not in before
        assert window.run("return window.same"), "the page was not loaded again"
        assert window.run("return document.querySelector('details').open")
        assert window.run("return document.querySelector('.search input').value") == "unfinished wor"
        assert window.run("return document.activeElement.matches('.search input')")
        assert "Nothing new since" in window.run(TEXT)
        source.show(live_view(SMALL))
        window.until("return !document.body.innerText.includes('Nothing new since')")
        assert window.run(FIRST) == before
        patched = window.run("return document.querySelector('#top').innerText")
        window.open(at)
        assert window.run("return document.querySelector('#top').innerText") == patched
        assert window.complaints() == []


def test_what_arrives_live_runs_no_script(window: Browser) -> None:
    source = GivenStream(live_view(SMALL))
    with served(source) as at:
        window.open(at)
        window.complaints()
        source.show(live_view(hostile_view(HOSTILE_URLS, HOSTILE), problem=HOSTILE, problem_ms=1, kept=HOSTILE))
        window.until("return document.querySelector('#top tbody th').textContent.includes('a.example')")
        assert window.run("return window.hacked === undefined && !document.querySelector('main script, main img')")
        assert window.complaints() == []


def test_a_live_page_says_when_its_server_is_away(window: Browser) -> None:
    source = GivenStream(live_view(SMALL))
    with served(source) as at:
        window.resize(360)
        window.open(at)
        assert window.run("return document.documentElement.scrollWidth") <= 360
        source.close()
    window.until("return document.querySelector('#live.away') !== null")
    window.complaints()
