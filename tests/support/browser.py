"""A real browser without a window, by the WebDriver protocol: Chromium and its driver from the system's packages."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

PROGRAMS = ("chromium", "chromedriver")
NO_BROWSER = "no browser: "  # the beginning of every skip here, for the summary of the run


def require_browser() -> None:
    """Skip the test, loudly, where there is no browser."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{NO_BROWSER}{', '.join(absent)} missing: apt-get install chromium chromium-driver")


class Browser:
    """A page in a browser."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, address: str) -> None:
        """Load a page, and wait until it is whole."""
        self._post("url", {"url": address})

    def run(self, script: str, *values: object) -> Any:
        """The value that a script returns, run by the driver: the page's own policy does not hold for it."""
        return self._post("execute/sync", {"script": script, "args": list(values)})

    def until(self, script: str) -> Any:
        """Wait until a condition is true, or a promise has a value; fails after ten seconds."""
        waits = f"""
            const done = arguments[arguments.length - 1], begun = performance.now();
            (function look() {{
                const value = (() => {{ {script} }})();
                if (value || performance.now() - begun > 10000) done(value); else setTimeout(look, 30);
            }})();"""
        value = self._post("execute/async", {"script": waits, "args": []})
        assert value, script
        return value

    def write(self, selector: str, text: str) -> None:
        """Type into an element."""
        (found,) = self._post("elements", {"using": "css selector", "value": selector})
        self._post(f"element/{next(iter(found.values()))}/value", {"text": text})

    def resize(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Make the window so large, light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._chrome("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._chrome("Emulation.setEmulatedMedia", {"features": [scheme]})

    def picture(self) -> bytes:
        """Return a screenshot, as PNG."""
        answer = requests.get(f"{self._session}/screenshot", timeout=60)
        return base64.b64decode(answer.json()["value"])

    def complaints(self) -> list[str]:
        """Return the browser's complaints since the last call: scripts that were refused, files that are missing."""
        return [one["message"] for one in self._post("se/log", {"type": "browser"})]

    def _chrome(self, command: str, values: dict[str, Any]) -> None:
        self._post("goog/cdp/execute", {"cmd": command, "params": values})

    def _post(self, what: str, values: dict[str, Any]) -> Any:
        answer = requests.post(f"{self._session}/{what}", json=values, timeout=60)
        assert answer.ok, answer.text[:500]
        return answer.json()["value"]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser, and end it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    driver = subprocess.Popen(
        [shutil.which("chromedriver") or "chromedriver", f"--port={port}"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert driver.stdout is not None
    try:
        for line in driver.stdout:
            if "successfully" in line:
                break
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options = {"args": arguments, "binary": shutil.which("chromium")}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        address = f"http://127.0.0.1:{port}/session"
        answer = requests.post(address, json={"capabilities": {"alwaysMatch": wanted}}, timeout=120)
        assert answer.ok, answer.text[:500]
        session = f"{address}/{answer.json()['value']['sessionId']}"
        try:
            yield Browser(session)
        finally:
            requests.delete(session, timeout=60)
    finally:
        driver.terminate()
        driver.wait(20)
        driver.stdout.close()
