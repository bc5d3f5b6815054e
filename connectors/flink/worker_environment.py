"""The program that TaskManagers start as a Python worker, and the options of Beam that name it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from opicflow.connectors.flink.rest import FlinkRefused


def worker_command() -> str:
    """Return the path of opicflow-worker: beside this Python, or on the path."""
    beside = Path(sys.executable or "python").with_name("opicflow-worker")  # Python within a program may have no name
    found = str(beside) if beside.exists() else shutil.which("opicflow-worker")
    if not found:
        raise FlinkRefused(
            "opicflow-worker is not on the path: give its path on the TaskManagers with --worker-command"
        )
    return found


def worker_options(command: str | None = None, variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the options of Beam by which TaskManagers start workers, with the command of this machine by default."""
    config = json.dumps({"command": command or worker_command(), "env": dict(variables or {})})
    return ["--environment_type=PROCESS", f"--environment_config={config}"]
