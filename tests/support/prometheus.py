"""A real Prometheus for tests, from the system's packages: it reads the files of deploy/monitoring."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import pytest

from deploy.services import processes
from deploy.services.instance import HOST, free_ports
from support.http_server import HttpAnswer, answering
from support.paths import TOP
from support.services import MISSING

MONITORING = TOP / "deploy" / "monitoring"
_READY_SECONDS = 60.0
_ANSWER_SECONDS = 30.0


def require_prometheus() -> None:
    """Skip the test, loudly, where there is no Prometheus."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip(f"{MISSING}no Prometheus: install it (Debian: apt install prometheus)")


def promtool(*arguments: object) -> str:
    """Run promtool, which must succeed; return its output."""
    done = subprocess.run(["promtool", *map(str, arguments)], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class AlertCase:
    """Series with a sample every 15 seconds, and at each time how many alerts of each name fire for them."""

    name: str
    series: Mapping[str, str]
    expected: Mapping[str, Mapping[str, int]]

    def to_json(self) -> dict[str, Any]:
        """Return the case as a test of promtool."""
        queries = [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": at,
                "exp_samples": [{"labels": "{}", "value": number}] if number else [],
            }
            for at, firing in self.expected.items()
            for alert, number in firing.items()
        ]
        inputs = [{"series": name, "values": values} for name, values in self.series.items()]
        return {"name": self.name, "interval": "15s", "input_series": inputs, "promql_expr_test": queries}


def check_rules(rules: Path, cases: Iterable[AlertCase], folder: Path) -> None:
    """Check all these cases in one run of promtool, which names those that fail."""
    tests = [case.to_json() for case in cases]
    file = folder / "cases.yml"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "30s", "tests": tests}))
    promtool("test", "rules", file)


class Prometheus:
    """A running Prometheus."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}/api/v1"

    def query(self, expression: str) -> list[Any]:
        """Return the result of a query now."""
        url = f"{self._url}/query?{urlencode({'query': expression})}"
        with build_opener(ProxyHandler({})).open(url, timeout=_ANSWER_SECONDS) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        result: list[Any] = answer["data"]["result"]
        return result

    def unanswered(self) -> list[str]:
        """Return the queries of the dashboard that have no answer now."""
        dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        queries += re.findall(r"label_values\((\w+),", json.dumps(dashboard["templating"]))
        assert len(queries) > 20
        return [one for one in queries if not self.query(one.replace("$job", ".*"))]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}


@contextmanager
def serving(metrics: Callable[[], str]) -> Iterator[str]:
    """Serve the text of a reporter; yields HOST:PORT."""
    with answering(lambda _: HttpAnswer(200, metrics().encode(), "text/plain; version=0.0.4")) as address:
        yield address.removeprefix("http://")


@contextmanager
def running_prometheus(folder: Path, targets: Sequence[str], faster: Mapping[str, str]) -> Iterator[Prometheus]:
    """Run Prometheus with the files of deploy/monitoring, where it reads these targets.

    `faster` has texts of the two files and their replacements, so that alerts fire within seconds.
    """
    folder.mkdir()
    changes = {"127.0.0.1:9249": ", ".join(targets), **faster}
    texts = {name: (MONITORING / name).read_text(encoding="utf-8") for name in ("prometheus.yml", "alerts.yml")}
    for old, new in changes.items():
        assert any(old in text for text in texts.values()), f"{old!r} is not in {MONITORING}"
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (port,) = free_ports(1)
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address={HOST}:{port}", "--query.lookback-delta=30s", "--log.level=warn"]
    process = processes.launch("prometheus", [str(shutil.which(command[0])), *command[1:]], folder / "log", True)
    try:
        found = Prometheus(f"{HOST}:{port}")
        assert processes.wait_until(lambda: _answers(found), _READY_SECONDS), (folder / "log").read_text()
        yield found
    finally:
        processes.end([process], 10.0)


def _answers(prometheus: Prometheus) -> bool:
    try:
        return prometheus.query("vector(1)") != []
    except OSError:
        return False
