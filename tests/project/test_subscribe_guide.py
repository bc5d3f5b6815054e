"""docs/guides/subscribe.md: its programs read the results of a replay, written with and without a registry."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fastavro import schemaless_reader

from deploy.services.artifacts import ServicesMissing, artifact, java
from opicflow.connectors.kafka.record_reader import STREAMS
from opicflow.schemas import published_schemas as published
from support.commands import output_of
from support.guides import LOG, python_blocks
from support.paths import TOP
from support.services import MISSING, LocalKafka, missing, raw_records

GUIDE = (TOP / "docs" / "guides" / "subscribe.md").read_text(encoding="utf-8")
PYTHON, LIBRDKAFKA = python_blocks("docs/guides/subscribe.md")
(JAVA,), (GO,) = (re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) for language in ("java", "go"))
FOUND = "1904 1.000000 https://docs.tern.example/\n"
"""The output of the programs for the log of the examples."""
GO_MODULES = ("hamba/avro/v2@v2.31.0", "twmb/franz-go@v1.19.5", "twmb/franz-go/pkg/kadm@v1.16.1")
PREFIXES = ("plain-", "registered-")
"""Of topics that were written without a registry, and with it."""


@pytest.fixture(scope="module")
def topics(kafka: LocalKafka) -> LocalKafka:
    """A broker with the results of a replay, in topics of each prefix."""
    for prefix in PREFIXES:
        prefix = f"subscribe-{prefix}"
        registry = ("--registry", kafka.registry) if "registered" in prefix else ()
        where = ("--brokers", kafka.brokers, "--prefix", prefix, *registry)
        output_of("topics", "create", *where, "--shards", 2, "--event-partitions", 1)
        to = ("--to", f"kafka://{kafka.brokers}", "--prefix", prefix, *registry)
        output_of("replay", LOG, *to, "--top", 0, "--quiet")
    return kafka


def program(code: str, topics: LocalKafka, prefix: str) -> str:
    """Return a program of the guide with the addresses and the topic of the test."""
    for name, other in (
        ("localhost:9092", topics.brokers),
        ("http://localhost:8080/apis/ccompat/v7", topics.registry),
        ('"importance"', f'"subscribe-{prefix}importance"'),  # the first one is the topic
    ):
        code = code.replace(name, other, 1)
    return code


def printed(folder: Path, *words: object, limit_seconds: float = 120) -> str:
    """Run a program beside the schemas, and return what it prints."""
    (folder / "schemas").symlink_to(TOP / "schemas")
    done = subprocess.run([*map(str, words)], cwd=folder, capture_output=True, text=True, timeout=limit_seconds)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_program_in_python_reads_both_forms(topics: LocalKafka, tmp_path: Path, prefix: str) -> None:
    assert printed(tmp_path, sys.executable, "-c", program(PYTHON, topics, prefix)) == FOUND


def test_the_program_with_librdkafka_finds_as_many_pages(topics: LocalKafka, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason=f"{MISSING}no confluent-kafka: make setup")
    assert printed(tmp_path, sys.executable, "-c", program(LIBRDKAFKA, topics, "plain-")) == "1904\n"


@pytest.mark.slow
@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_program_in_java_reads_both_forms(topics: LocalKafka, tmp_path: Path, prefix: str) -> None:
    try:
        folder = artifact("subscriber", "Avro for Java", print)
    except ServicesMissing as problem:
        missing(str(problem))
    (tmp_path / "ReadImportance.java").write_text(program(JAVA, topics, prefix), encoding="utf-8")
    assert printed(tmp_path, java(), "-cp", f"{folder}/*", "ReadImportance.java") == FOUND


@pytest.mark.slow
def test_the_program_in_go_reads_both_forms(topics: LocalKafka, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip(f"{MISSING}no Go: install it (Debian: apt install golang)")
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    (tmp_path / "go.mod").write_text("module subscriber\n")
    modules = [f"github.com/{one}" for one in GO_MODULES]
    fetched = subprocess.run([go, "get", *modules], cwd=tmp_path, capture_output=True, text=True, env=environment)
    if fetched.returncode:
        pytest.skip(f"{MISSING}the modules of Go cannot be fetched: {fetched.stderr.splitlines()[-1]}")
    for prefix in PREFIXES:
        (tmp_path / "main.go").write_text(program(GO, topics, prefix), encoding="utf-8")
        subprocess.run([go, "build", "-o", prefix, "."], cwd=tmp_path, check=True, timeout=900, env=environment)
        (tmp_path / f"of-{prefix}").mkdir()
        assert printed(tmp_path / f"of-{prefix}", tmp_path / prefix) == FOUND


def test_the_first_ten_bytes_of_each_topic_are_those_of_the_table(topics: LocalKafka) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w-]+) \| `([0-9a-f ]+)` \|$", GUIDE, re.MULTILINE)
    assert {topic: schema for schema, topic, _ in rows} == STREAMS
    for schema, topic, head in rows:
        assert bytes.fromhex(head) == b"\xc3\x01" + published.fingerprint(schema).to_bytes(8, "little"), schema
        for record in raw_records(topics.brokers, f"subscribe-plain-{topic}"):
            assert record.value is None or record.value[:10] == bytes.fromhex(head)


def test_keys_recognise_copies_as_the_table_says(topics: LocalKafka) -> None:
    def of(topic: str, schema: str) -> list[tuple[str, dict[str, object]]]:
        records = raw_records(topics.brokers, f"subscribe-plain-{topic}")
        named = published.schema(schema)
        return [
            (one.key.decode(), schemaless_reader(io.BytesIO(one.value[10:]), named)) for one in records if one.value
        ]

    assert all(key == record["url"] for key, record in of("importance", "Importance"))
    assert all(key == record["url"] for key, record in of("refresh-schedule", "RefreshSchedule"))
    assert all(key == record["url"] for key, record in of("crawl-orders", "CrawlOrder"))
    rejects = of("rejects", "Reject")
    assert len(dict(rejects)) == 11
    assert [key for key, _ in rejects] == [f"{record['source']}:{record['offset']}" for _, record in rejects]
