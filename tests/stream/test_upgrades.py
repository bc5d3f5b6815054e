"""Streams that an earlier version stopped go on, from its savepoints and snapshots, and on the data of its broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.services import LocalCluster
from support.stored_stream import ARCHIVES, HISTORIES, ArchivedEvents, stream_of, unpacked
from support.waiting import Pending


@pytest.mark.slow
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name)
@pytest.mark.parametrize("name", HISTORIES)
def test_a_stream_of_an_earlier_version_goes_on_from_its_savepoint(
    flink_kafka: LocalCluster, tmp_path: Path, archive: Path, name: str
) -> None:
    """It reads only what the earlier version had not read, and counts every event of both once."""
    events = ArchivedEvents.of_crawl()
    with unpacked(archive, tmp_path, flink_kafka) as cluster:
        stream = stream_of(cluster, tmp_path, name)
        assert stream.published == len(events.counted) + len(events.waiting)
        savepoint = tmp_path / "savepoints" / name
        stream.start("--from-savepoint", savepoint.as_uri())
        try:
            job = stream.job.id
            assert stream.flink.checkpoints(job).restored_path.endswith(f"/savepoints/{name}")
            stream.publish(events.new)
            stream.check()
            read = {"events_read": len(events.waiting) + len(events.new), "policies": 1, "ledgers_recovered": 2}

            def counts() -> bool | Pending:
                metrics = stream.flink.beam_metrics(job)
                found = {name: int(metrics.get(name, 0)) for name in read}
                return found == read or Pending(str(found))

            stream.wait_for("this version has read the other events, and restored the ledgers", counts)
            assert stream.flink.details(job).restarts == 0, "a restart begins the counts again"
            assert stream.rejects() == []
        finally:
            stream.cancel()
