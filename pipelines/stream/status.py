"""The output of `opicflow stream status` about a running stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opicflow.pipelines.stream.loads import Load, advice, spread_in_words, table
from opicflow.schemas.dates import iso_time

if TYPE_CHECKING:
    from opicflow.connectors.flink.rest import Checkpoints, JobDetails
    from opicflow.connectors.kafka.partitions import PartitionRange

LONG_WAIT_SECONDS = 60.0
"""A checkpoint, and a poll of every partition, take seconds: after so many, a worker hangs, or waits for brokers or
storage."""
_TROUBLES_SHOWN = 3


@dataclass(frozen=True)
class StreamStatus:
    """A job, its checkpoints and metrics, and why its brokers do not answer: empty if they do, None if not known.

    `logs` are the partitions that the job reads, as the brokers have them now; None: not known.
    """

    details: JobDetails
    checkpoints: Checkpoints
    metrics: Mapping[str, float]
    broker_problem: str | None = None
    logs: Sequence[PartitionRange] | None = None

    @property
    def counted_ms(self) -> int:
        """The time of the oldest metrics: Flink shows the last ones that a worker reported. 0 if they have none."""
        return int(1000 * min(self._beginning_with("read_second_").values(), default=0))

    @property
    def silent_since_ms(self) -> int:
        """Since when a worker does not answer, so that all counts are of that time; 0 if all answer."""
        now_ms, long_ms = self.details.now_ms, 1000 * LONG_WAIT_SECONDS
        since = [at for at in (self.checkpoints.waiting_since_ms, self.counted_ms) if at and now_ms - at > long_ms]
        return min(since, default=0)

    def values(self) -> dict[str, object]:
        """Return all values, for JSON."""
        details, checkpoints, last = self.details, self.checkpoints, self.checkpoints.last
        return {
            "job": details.job.id,
            "name": details.job.name,
            "state": details.job.state,
            "runs": details.runs,
            "restarts": details.restarts,
            "brokers": {None: "not checked", "": "answer"}.get(self.broker_problem, self.broker_problem),
            "trouble": [
                {"at": iso_time(one.at_ms), "cause": one.cause, "lasts": one in details.lasting_trouble}
                for one in details.trouble
            ],
            "checkpoints": {
                "completed": checkpoints.completed,
                "failed": checkpoints.failed,
                "failed_since_last": checkpoints.failed_since_last,
                "waiting_since": iso_time(checkpoints.waiting_since_ms) if checkpoints.waiting_since_ms else None,
                "last": last
                and {"id": last.id, "path": last.path, "bytes": last.written_bytes, "seconds": last.seconds},
            },
            "lag": None if self.lags_unknown() else self.lags(),
            "loads": [load._asdict() for load in self._loads()],
            "counted_at": iso_time(self.counted_ms) if self.counted_ms else None,
            "metrics": dict(self.metrics),
        }

    def lines(self, with_table: bool = False) -> Iterator[str]:
        """Yield the lines for a terminal; the table has a row for each shard."""
        for title, text in self._rows():
            yield f"{title:12} {text}"
        if with_table:
            yield from table(self._loads())
        if advised := advice(self._loads()):
            yield f"note         {advised}"
        for one in self.details.lasting_trouble[:_TROUBLES_SHOWN]:
            yield f"trouble      {iso_time(one.at_ms)}: {one.cause}"
        if self.silent_since_ms:
            at = iso_time(self.silent_since_ms)
            yield f"trouble      {at}: since then a worker does not answer; all counts are of that time"
        if self.broker_problem:
            yield f"trouble      {self.broker_problem}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        job = self.details.job
        yield "job", f"{job.name!r} ({job.id}): {job.state}, {self.details.restarts} restarts"
        yield "brokers", _BROKERS.get(self.broker_problem, "do not answer: see the trouble below")
        yield "checkpoints", self._checkpoints_in_words()
        if unknown := self.lags_unknown():
            yield "lag", unknown
        else:
            for topic, lag in sorted(self.lags().items()):
                yield "lag", f"{topic}: {lag:,} records"
        if not self.metrics:
            yield "counts", "not known: no worker has reported since the tasks started"
            return
        if self.counted_ms:
            age = max(self.details.now_ms - self.counted_ms, 0) / 1000
            lost = "" if self.details.runs else ", before the tasks ended"
            yield "counts", f"of {iso_time(self.counted_ms)}, {age:,.0f} s ago{lost}"
        for name in ("visits", "transfers", "pages"):
            yield name, f"{self.in_all_shards(name):,}"
        yield "since start", self._since_the_start()
        yield "audit drift", f"{self.in_all_shards('audit_drift'):,}"
        if snapshots := self._snapshots():
            yield "snapshots", snapshots
        yield "certificate", self._certificate()
        yield "settled", self._settled()
        yield "pages off", self._pages_off()
        if loads := self._loads():
            yield "load", spread_in_words(loads)

    def _checkpoints_in_words(self) -> str:
        last, failed = self.checkpoints.last, self.checkpoints.failed_since_last
        if last is None:
            return f"none complete, {failed:,} failed"
        since = f", {failed:,} failed since" if failed else ""
        return (
            f"{self.checkpoints.completed:,} complete{since}; the last wrote {last.written_bytes / 1e6:,.1f} MB in "
            f"{last.seconds:.1f} s"
        )

    def lags_unknown(self) -> str:
        """Return why lags are not known; nothing if they are.

        Until a worker has reported, where it goes on is not known: all that a topic holds would count as lag.
        """
        if self.broker_problem:
            return "not known while the brokers do not answer"
        if self.silent_since_ms:
            return "not known while a worker does not answer: see the trouble below"
        return "" if self.metrics else "not known: no worker has reported since the tasks started"

    def _snapshots(self) -> str:
        """Return how old the newest snapshots in storage are; nothing if they go into Flink's state."""
        ages = self._of_shards("snapshot_age_seconds").values()
        if not ages:
            return ""
        failures = {"could not be written": "snapshot_failures", "were damaged": "snapshots_damaged"}
        problems = [f"{self.count(name):,} {what}" for what, name in failures.items() if self.count(name)]
        see = f", {', '.join(problems)} (see the workers' logs)" if problems else ""
        written = f"{self.count('snapshots'):,} written since the start{see}"
        return f"{written}; the oldest shard's has {max(ages) / 60:,.0f} minutes of log behind it"

    def _since_the_start(self) -> str:
        counts = {name: self.count(name) for name in ("events_read", "late", "duplicates")}
        rejected = self.count("rejected_events") + self.count("rejected")
        events, late, duplicates = (f"{count:,}" for count in counts.values())
        ticks = f", {refused:,} ticks refused: clocks differ" if (refused := self.count("refused_ticks")) else ""
        return f"{events} events read, {late} late, {duplicates} duplicates, {rejected:,} rejected{ticks}"

    def _certificate(self) -> str:
        bounds = self._of_shards("certificate_per_million").values()
        return f"all errors of importance together are at most {max(bounds) / 1e6:.2g}" if bounds else "none"

    def _settled(self) -> str:
        unsettled = list(self._of_shards("unsettled").values())
        if not unsettled:
            return "not known"
        where = f"in {int(sum(unsettled))} of {len(unsettled)} shards"
        return f"no, {where}: while pages are visited again, its errors fall" if any(unsettled) else "yes"

    def _pages_off(self) -> str:
        """Return how many pages have a record that is no longer true."""
        off = self.in_all_shards("pages_off")
        return f"{off:,} pages have moved by more than a hundredth since they were published" if off else "none"

    def _loads(self) -> list[Load]:
        """Return what each shard has; nothing with one shard, or before the first audit."""
        columns = [self._of_shards(name) for name in ("pages", "visits", "bytes")]
        if len(columns[0]) < 2:
            return []
        return [Load(shard, *(int(column.get(shard, 0)) for column in columns)) for shard in sorted(columns[0])]

    def lags(self) -> dict[str, int]:
        """Return the records of each topic that are not read yet: by the ends that the brokers have, if known.

        A partition that no worker has read yet counts as a whole. Otherwise the lags are those of the last reads.
        """
        lags: Counter[str] = Counter()
        if self.logs is None:
            for name, value in self._beginning_with("lag_").items():
                lags[name.rpartition("_")[0]] += int(value)
        for log in self.logs or ():
            read_to = int(self.metrics.get(f"read_to_{log.topic_id}_{log.partition}", 0))
            lags[log.topic] += max(log.end - max(read_to, log.start), 0)
        return dict(lags)

    def count(self, name: str) -> int:
        """Return a metric of the whole stream; 0 if there is none."""
        return int(self.metrics.get(name, 0))

    def _of_shards(self, name: str) -> dict[int, float]:
        return {int(shard): value for shard, value in self._beginning_with(f"{name}_shard_").items()}

    def _beginning_with(self, start: str) -> dict[str, float]:
        """Return the metrics whose names begin so, by the rest of their names."""
        return {name.removeprefix(start): value for name, value in self.metrics.items() if name.startswith(start)}

    def in_all_shards(self, name: str) -> int:
        """Return the sum of a metric over all shards."""
        return int(sum(self._of_shards(name).values()))


_BROKERS = {None: "not checked: name them with --brokers HOST:PORT", "": "answer"}
