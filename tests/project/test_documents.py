"""The documents can be found, and their links lead to files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

from support.paths import TOP

DOCS = TOP / "docs"
ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")
PAGES = [*DOCS.rglob("*.md"), *(TOP / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]
CODE = ["pipelines", "connectors", "schemas", "deploy", "tests", "benchmarks", "examples"]
LINK = r"\[[^]]*\]\(([^)#]+)(?:#[^)]*)?\)"


def test_every_page_is_in_the_list_of_documents() -> None:
    lists = [DOCS / "README.md", DOCS / "decisions" / "README.md"]
    linked = {(page.parent / link).resolve() for page in lists for link in re.findall(LINK, page.read_text("utf-8"))}
    assert [page for page in DOCS.rglob("*.md") if page not in linked | set(lists)] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    shown = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in shown}


def test_links_lead_to_headings_that_exist() -> None:
    wrong = []
    for page in PAGES:
        for link, anchor in re.findall(r"\[[^]]*\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8")):
            if anchor not in anchors((page.parent / link) if link else page):
                wrong.append((page.name, f"{link}#{anchor}"))
    assert wrong == []


def test_modules_that_are_named_exist() -> None:
    modules = {"setup.py"} | {file.name for top in CODE for file in (TOP / top).rglob("*.py")}
    named = {(page.name, name) for page in PAGES for name in re.findall(r"\b\w+\.py\b", page.read_text("utf-8"))}
    assert {(page, name) for page, name in named if name not in modules} == set()


def test_names_that_the_architecture_gives_are_in_the_files_it_gives() -> None:
    named = [(path, name) for path, name in re.findall(LINK + r" \(`(\w+)`\)", ARCHITECTURE)]
    named += [(path, name) for name, path in re.findall(r"`(\w+)` in " + LINK, ARCHITECTURE)]
    assert len(named) >= 5
    missing = [
        (path, name)
        for path, name in named
        if not re.search(
            rf"^( *(def|class) {name}\b|{name}( =|:))", (DOCS / path).read_text("utf-8"), flags=re.MULTILINE
        )
    ]
    assert missing == []


def test_the_architecture_lists_every_room() -> None:
    rooms = {folder.parent for folder in (TOP / "pipelines").glob("*/__init__.py")}
    listed = {(DOCS / link).resolve() for link in re.findall(LINK, ARCHITECTURE)}
    assert rooms <= listed


def test_every_page_has_a_title_and_then_text() -> None:
    assert [page for page in PAGES if not re.match(r"# \S[^\n]*\n\n\S", page.read_text("utf-8"))] == []
