"""Requests to all ledgers of a stream: one entry in each log, and none where there are no ledgers."""

from __future__ import annotations

import pytest

from opicflow.pipelines.ledger import LedgerConfig
from opicflow.pipelines.stages.ledger_keeper import request_republication
from opicflow.pipelines.stages.log_settings import LogRefused, Origin
from opicflow.pipelines.stream.requests import republish
from opicflow.schemas.shards import ShardRanges
from support.logs import FIRST_MS
from support.memory_kafka import MemoryCluster, MemoryConnection

LOG, SHARDS = "page-ledger", 3


@pytest.mark.parametrize("with_origin", [[0, 1, 2], [2]])
def test_a_republication_is_requested_of_every_shard(with_origin: list[int]) -> None:
    cluster = MemoryCluster(0, FIRST_MS)
    log = cluster.make(LOG, SHARDS, has_broker_times=True)
    for shard in with_origin:
        log.append(shard, FIRST_MS, Origin(LedgerConfig(), ShardRanges.equal(SHARDS)).entry())
    assert republish(MemoryConnection(cluster=cluster), LOG) == SHARDS
    assert [one.records[-1].value for one in log.partitions] == [request_republication()] * SHARDS


def test_a_topic_without_ledgers_gets_no_request() -> None:
    cluster = MemoryCluster(0, FIRST_MS)
    log = cluster.make(LOG, SHARDS, has_broker_times=True)
    with pytest.raises(LogRefused, match=LOG):
        republish(MemoryConnection(cluster=cluster), LOG)
    assert not any(one.records for one in log.partitions)
