"""Output of commands: whatever names from outside have in them, a terminal executes nothing, and lines are ours."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import CommandResult, command, finished
from support.paths import TOP

HOSTILE = "\x1b[2J\u202e\x9b\nopicflow: all is well"
ESCAPED = r"\x1b[2J\u202e\x9b\x0aopicflow: all is well"
LINE = '{"url": "https://a.example/", "status": 200, "links": ["https://b.example/"]}\n'


def unsafe_prints(file: Path) -> Iterator[str]:
    """Yield the calls that print what may not be safe."""
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "print(" in text or "std" in text else ():
        if not isinstance(node, ast.Call):
            continue
        called, words = ast.unparse(node.func), [ast.unparse(word) for word in node.args]
        if called == "print" or called.endswith(("stdout.write", "stderr.write", "stdout.writelines")):
            safe = ("printable(", "json.dumps(", "safe_json(", "map(safe_json, ")
            if not all(
                isinstance(one, ast.Constant) or word.startswith(safe)
                for one, word in zip(node.args, words, strict=True)
            ):
                yield f"{file.relative_to(TOP)}:{node.lineno}: {ast.unparse(node)}"


def test_what_is_not_constant_is_printed_by_functions_that_escape() -> None:
    """`print_lines` for lines, `json.dumps` and `safe_json` for JSON; `main` prints what commands have printed."""
    files = [file for top in ("pipelines", "connectors", "schemas") for file in (TOP / top).rglob("*.py")]
    found = [call for file in files for call in unsafe_prints(file)]
    allowed = {"print(printed, end='')", "sys.stdout.writelines(texts)"}  # `write_site_list` escapes names
    assert [call for call in found if call.partition(": ")[2] not in allowed] == []


def assert_safe(done: CommandResult) -> None:
    for text in (done.out, done.err):
        assert all(line.isprintable() for line in text.split("\n")), text
        assert not any(line.startswith("opicflow: all is well") for line in text.split("\n")), text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of such a name, with logs, an archive of logs, results, a state and a graph."""
    made = tmp_path_factory.mktemp("hostile") / HOSTILE
    made.mkdir()
    (made / f"{HOSTILE}.jsonl").write_text(LINE + "{\n")
    with zipfile.ZipFile(made / "logs.zip", "w") as archive:
        archive.writestr(f"{HOSTILE}.jsonl", LINE)
    (made / "empty.jsonl").write_text("")
    (made / "sites.csv").write_text(f'site,importance\n"{HOSTILE}.example",0.5\n')
    (made / "edges.csv").write_text("https://a.example/,https://b.example/\n")
    done = finished("replay", made / f"{HOSTILE}.jsonl", "--state", made / "state", "--out", made / "out")
    assert f"written: {made.parent}/{ESCAPED}/out/importance.jsonl\n" in done.out
    assert_safe(done)
    assert_safe(command("graph", "build", made / f"{HOSTILE}.jsonl", "--out", made / "graph"))
    return made


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "words",
    [
        "replay F/LOG",
        "replay F/logs.zip F/empty.jsonl --out F/out",
        "replay F/none",
        "replay F/LOG --state F/state",
        "replay F/LOG --state F/out",
        "validate F/LOG F/logs.zip F/empty.jsonl",
        "validate F/LOG --input-format HOSTILE",
        "validate F/LOG --field HOSTILE=HOSTILE",
        "top --state F/state",
        "top F/out --by host --out F/hosts.csv",
        "top F/sites.csv --by host",
        "top F/sites.csv --by host --as tranco",
        "show https://a.example/ --state F/state",
        "show HOSTILE --state F/state",
        "schedule --state F/state --export F/plan.csv",
        "export importance F/out --as csv --out F/table.csv",
        "export importance F/LOG --as csv --out F/table.csv",
        "export importance F/out --as csv --columns HOSTILE",
        "compare F/out F/out",
        "compare F/out F/LOG",
        "compare --grades F/edges.csv F/out",
        "rank F/graph --out F/ranks.csv",
        "rank F/edges.csv --json",
        "graph info F/graph",
        "graph check F/graph",
        "simulate --edges F/edges.csv --out F/simulated.jsonl --ranks F/exact.csv",
        "community members F/LOG --local F/edges.csv",
        "config",
        "HOSTILE",
        "replay --HOSTILE",
        "top --by HOSTILE",
        "subscribe importance --brokers HOSTILE",
        "publish events F/LOG --brokers HOSTILE",
        "topics check --properties F/LOG",
        "push urlfrontier://HOSTILE --results F/out",
    ],
)
def test_names_from_outside_are_printed_without_what_a_terminal_executes(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    given = [
        word.replace("LOG", f"{HOSTILE}.jsonl").replace("F/", f"{folder}/").replace("HOSTILE", HOSTILE)
        for word in words.split()
    ]
    done = command(*given)
    assert_safe(done)
    assert done.err.count("Traceback") == 0 and done.code in (0, 1, 2)
