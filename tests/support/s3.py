"""A server with one bucket, which speaks S3 as Amazon does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "snapshots"
SECRET = "hidden-key-of-storage"


class S3:
    """The server, which can be stopped before its time."""

    def __init__(self) -> None:
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"


@contextmanager
def s3_server(patch: pytest.MonkeyPatch) -> Iterator[S3]:
    """Start a server, with a login in the environment."""
    patch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    one = S3()
    try:
        boto3.client("s3", endpoint_url=one.endpoint).create_bucket(Bucket=BUCKET)
        yield one
    finally:
        one.server.stop()
