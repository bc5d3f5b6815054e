"""The project folder, for tests that read its files."""

from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
