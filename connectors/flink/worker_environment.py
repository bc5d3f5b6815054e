"""The program that TaskManagers start as a Python worker."""

from __future__ import annotations

import shutil
import sys
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
