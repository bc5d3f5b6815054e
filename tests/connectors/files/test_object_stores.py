"""Logs in an object store are read as those on this machine. What cannot be reached is refused soon, in a line."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from opicflow.connectors.files.opening import InputRefused, expand
from support.commands import output_of
from support.s3 import BUCKET, S3, SECRET, s3_server

LINES = [f'{{"url":"https://a.example/{number}","status":200,"links":[]}}\n'.encode() for number in range(40)]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    with s3_server(monkeypatch) as one:
        monkeypatch.setenv("AWS_ENDPOINT_URL", one.endpoint)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        yield one


@pytest.mark.slow
def test_logs_in_a_bucket_are_read_as_those_on_this_machine(s3: S3, tmp_path: Path) -> None:
    client = boto3.client("s3")
    for name, data in {"a.jsonl": b"".join(LINES[:25]), "b.jsonl.gz": gzip.compress(b"".join(LINES[25:]))}.items():
        client.put_object(Bucket=BUCKET, Key=f"logs/{name}", Body=data)
        (tmp_path / name).write_bytes(data)
    assert expand([f"s3://{BUCKET}/logs/*"]) == [f"s3://{BUCKET}/logs/a.jsonl", f"s3://{BUCKET}/logs/b.jsonl.gz"]
    there, here = (output_of("validate", f"{place}/*") for place in (f"s3://{BUCKET}/logs", tmp_path))
    assert there == here and there.startswith("40 events read = 40 visits")


@pytest.mark.parametrize("name", ["none/a.jsonl", "none/*.jsonl"])
def test_a_bucket_without_the_log_is_refused(s3: S3, name: str) -> None:
    with pytest.raises(InputRefused, match="no such file: check the name"):
        expand([f"s3://{BUCKET}/{name}"])


def test_a_store_that_cannot_be_reached_is_refused_soon_without_a_secret(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam would try again for minutes."""
    s3.server.stop()
    with pytest.raises(InputRefused, match=r"cannot be listed \(Could not connect to the endpoint URL") as away:
        expand([f"s3://{BUCKET}/a.jsonl"])
    assert SECRET not in str(away.value) and str(away.value).isprintable()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no address")
    with pytest.raises(InputRefused, match="cannot be listed"):
        expand([f"s3://{BUCKET}/a.jsonl"])


def test_a_missing_login_is_refused_soon(s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(InputRefused, match=r"a\.jsonl: cannot be listed \(Unable to locate credentials\): check"):
        expand([f"s3://{BUCKET}/a.jsonl"])
