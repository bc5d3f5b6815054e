"""The words of docs/glossary.md mean one thing in documents, docstrings, comments and messages.

Found is the wrong use that a pattern can find: each pattern stands beside the words to write. `python
tests/project/test_glossary.py` prints the places.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
GLOSSARY = TOP / "docs" / "glossary.md"
PAGES = sorted([*TOP.glob("*.md"), *(page for top in ("docs", "benchmarks") for page in (TOP / top).rglob("*.md"))])
SOURCES = sorted(file for top in ("pipelines", "connectors", "schemas") for file in (TOP / top).rglob("*.py"))

_HISTORY = r"(?:certified|interpolation|variable|fixed|improved|all)"
WRONG = {
    "history policy": [
        rf"\bthe (?:`{_HISTORY}`|certified|interpolation) polic(?:y|ies)\b",
        rf"(?<!history )\bpolic(?:y|ies) (?:other than )?\[?(?:`{_HISTORY}`|certified\b|interpolation\b)",
        r"\b(?:window|absorbing) polic(?:y|ies)\b",
        r"\bunder (?:every|any|the|the other|another|other) polic(?:y|ies)\b",
        r"^\|(?: [^|]+ \|){0,2} policy \|",
    ],
    "refresh strategy": [r"\brefresh(?:ing)? polic(?:y|ies)\b", r"\brefresh(?:ing)? algorithms?\b"],
    "policy": [r"\bpublications? \(polic(?:y|ies)\)", r"\b(?:users?|people|operators?)(?:'s)? publications?\b"],
    "publication": [r"\brows of a moment\b", r"\bmoments? (?:is|are|was|were) published\b", r"\bpublished moments?\b"],
    "input range, segment": [r"\bstretch(?:es)?\b", r"\bportions? of (?:a|the) (?:file|log|topic)\b"],
    "removal reason, removed": [r"\blet(?:s|ting)? go of pages?\b", r"\bleavers?\b"],
    "change rate": [r"\bchange frequenc(?:y|ies)\b", r"\brates? of changes?\b"],
    "graph of sites": [r"\bsite graph\b(?!\.py)", r"\bhost graph\b"],
    "rebuilt, again, recently": [r"\banew\b", r"\bof late\b", r"\bas ever\b", r"\bnought\b"],
}
"""The word of the glossary, and patterns of what is written in its stead."""


def text_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, the messages (strings with a space) and the comments of a module, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for number, line in enumerate(node.value.splitlines()):
                yield node.lineno + number, line


def found_in(file: Path) -> Iterator[str]:
    """Yield the places of a file with a wrong use of a word."""
    text = file.read_text(encoding="utf-8")
    lines = text_of(text) if file.suffix == ".py" else enumerate(text.splitlines(), 1)
    for number, line in lines:
        for word, patterns in WRONG.items():
            for pattern in patterns:
                if (wrong := re.search(pattern, line, re.IGNORECASE)) and file != GLOSSARY:
                    yield f"{file.relative_to(TOP)}:{number}: {wrong[0].strip()!r}: write {word}"


def test_words_of_the_glossary_are_used_as_it_defines_them() -> None:
    assert [place for file in [*PAGES, *SOURCES] for place in found_in(file)] == []


@pytest.mark.parametrize(
    "line",
    [
        "under the window policies both fields are the estimate",
        "the policy `certified` has no virtual page",
        "| order | policy | 0 % |",
        "a refresh policy shares the bandwidth",
        "publications (policies) have their own entries",
        "values that all rows of a moment share",
        "it is made anew",
    ],
)
def test_a_wrong_use_is_found(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TOP", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{line}\n", encoding="utf-8")
    (place,) = found_in(page)
    assert place.startswith("page.md:3: ")


@pytest.mark.parametrize("line", ["a policy `forget` for its hosts", "the history policy certified", "at any moment"])
def test_a_right_use_is_not_found(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TOP", tmp_path)
    (tmp_path / "page.md").write_text(line, encoding="utf-8")
    assert list(found_in(tmp_path / "page.md")) == []


if __name__ == "__main__":
    print(*(place for file in [*PAGES, *SOURCES] for place in found_in(file)), sep="\n")
