"""A library that lacks a part is refused in one line; a bug stays a bug."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kafka import KafkaConsumer

from opicflow.schemas import libraries
from opicflow.schemas.libraries import LibraryRefused, parts_of


def missing_module() -> None:
    import kafka.no_such_module  # noqa: F401


def missing_name() -> None:
    from kafka.errors import no_such_name  # noqa: F401


def missing_attribute() -> None:
    _ = KafkaConsumer.no_such_attribute


def missing_attribute_of_an_object() -> None:
    class Ours(KafkaConsumer):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    _ = Ours()._no_such_attribute


@pytest.mark.parametrize("use", [missing_module, missing_name, missing_attribute, missing_attribute_of_an_object])
def test_a_library_that_lacks_a_part_is_refused_with_its_version_and_the_right_one(use) -> None:
    with pytest.raises(LibraryRefused, match=r"^kafka-python [\d.]+ lacks .*no_such.*: pip install 'kafka-python.*'$"):
        parts_of("kafka-python", "kafka")(use)()


def bug_of_ours() -> None:
    _ = libraries.no_such_name  # type: ignore[attr-defined]


def another_library() -> None:
    import no_such_library  # noqa: F401


@pytest.mark.parametrize("use", [bug_of_ours, another_library])
def test_other_errors_are_raised_as_they_are(use) -> None:
    with pytest.raises((AttributeError, ImportError)) as raised:
        parts_of("kafka-python", "kafka")(use)()
    assert "no_such" in str(raised.value)


TRIMMED = """
import sys
import kafka.net.manager
del kafka.net.manager.KafkaConnectionManager
from opicflow.pipelines.cli.main import main
sys.exit(main(["topics", "check", "--brokers", "127.0.0.1:1"]))
"""


def test_a_command_says_in_one_line_that_a_part_of_a_library_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", TRIMMED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and done.stderr.startswith("opicflow: kafka-python "), done.stderr
    assert done.stderr.count("\n") == 1 and "KafkaConnectionManager" in done.stderr
