"""AdaptiveOpic in pipelines of other people: the numbers are those of a replay, whatever reads and writes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.display import DisplayData

from opicflow.connectors import runs
from opicflow.connectors.files.log_reader import FileRange, Format
from opicflow.pipelines.adaptive_opic import AdaptiveOpic, Publications
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import ConfigRefused, Interpolation, LedgerConfig
from opicflow.pipelines.replay.events import DecodeEvents
from opicflow.pipelines.replay.replayed_log import ReplayConfig
from opicflow.pipelines.replay.segment_steps import ReplaySettings
from opicflow.pipelines.replay.segments import LOCAL
from opicflow.pipelines.stages.decode import decode_range
from opicflow.pipelines.stages.decoded_batch import DecodedBatch
from opicflow.pipelines.stages.keep_ledger import KeepLedger
from opicflow.pipelines.stages.rules import Categories, Rules
from opicflow.schemas.pages import PageIds
from opicflow.schemas.published_schemas import schema
from support.logs import WebLog, jsonl, records_of, run

KINDS = {
    "importance": "importance",
    "refresh_schedule": "refresh-schedule",
    "crawl_orders": "crawl-orders",
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl, with a line that is no event and one that is no UTF-8."""
    web = WebLog(power_law_web(200, 3, dangling=0.1), announced=True, seconds_between=977.0)
    lines = jsonl(web.crawl("random", 900).events).splitlines(keepends=True)
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_bytes(b"".join([*lines[:400], b"nonsense\n", b'{"url":"http://caf\xe9.example/"}\n', *lines[400:]]))
    return path


@pytest.fixture(scope="module")
def replayed(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a replay of the crawl."""
    out = tmp_path_factory.mktemp("out")
    run([log], out, runner=LOCAL, prefers_certified=True)
    return out


class Saved:
    """Where a pipeline writes the records of each output, as lines of JSON."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, published: Publications) -> None:
        for name, records in published._asdict().items():
            lines = records | f"Lines {name}" >> beam.Map(lambda record: orjson.dumps(record, default=repr).decode())
            _ = lines | f"Write {name}" >> beam.io.WriteToText(str(self._folder / name), shard_name_template="")

    def records(self, name: str) -> list[dict[str, Any]]:
        return records_of(self._folder / name)


def assert_same(found: Saved, replayed: Path) -> None:
    for name, file in KINDS.items():
        expected = {one["page"]: one for one in records_of(replayed / f"{file}.jsonl")}
        assert len(expected) > 50
        assert {one["page"]: one for one in found.records(name)} == expected, name
    assert len(found.records("rejects")) == len(records_of(replayed / "rejects.jsonl")) == 2


def test_lines_of_a_file_give_what_a_replay_gives(log: Path, replayed: Path, tmp_path: Path) -> None:
    before = set(runs._runs)
    saved = Saved(tmp_path)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        lines = pipeline | beam.io.ReadFromText(str(log), coder=beam.coders.BytesCoder())
        saved.save(lines | AdaptiveOpic())
    assert_same(saved, replayed)
    assert set(runs._runs) == before, "no ledger is left in this process"


def events_of(log: Path) -> Iterator[dict[str, Any]]:
    for line in log.read_bytes().splitlines():
        if line.startswith(b'{"') and line.isascii():
            yield json.loads(line)


def test_dicts_give_what_their_lines_give(log: Path, replayed: Path, tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        events = pipeline | beam.Create([*events_of(log), {"nothing": 1}, {"url": 7}], reshuffle=False)
        saved.save(events | AdaptiveOpic())
    assert_same(saved, replayed)


def test_decoded_batches_give_what_their_lines_give(log: Path, replayed: Path, tmp_path: Path) -> None:
    batches = [one for one in decode_range(FileRange("a log", str(log), Format.JSONL), Rules()) if one.size_bytes]
    saved = Saved(tmp_path)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        saved.save(pipeline | beam.Create(batches, reshuffle=False) | AdaptiveOpic())
    assert_same(saved, replayed)


def test_avro_in_and_parquet_out(log: Path, replayed: Path, tmp_path: Path) -> None:
    def record(event: dict[str, Any]) -> dict[str, Any]:
        at = event.get("fetched_at")
        kind = "ANNOUNCE" if event.get("kind") == "announce" else "VISIT"
        links = event.get("links")
        links = links and [{"url": link} if isinstance(link, str) else link for link in links]
        return {**event, "kind": kind, "fetched_at": at, "links": links}

    with open(tmp_path / "events.avro", "wb") as file:
        fastavro.writer(file, schema("CrawlEvent"), map(record, events_of(log)))
    columns = pa.schema([("page", pa.string()), ("importance", pa.float64()), ("last_visit", pa.int64())])
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        published = pipeline | beam.io.ReadFromAvro(str(tmp_path / "events.avro")) | AdaptiveOpic()
        rows = published.importance | beam.Map(lambda page: {name: page[name] for name in columns.names})
        _ = rows | beam.io.WriteToParquet(str(tmp_path / "ranks"), columns, file_name_suffix=".parquet")
    (written,) = tmp_path.glob("ranks*.parquet")
    expected = [{name: one[name] for name in columns.names} for one in records_of(replayed / "importance.jsonl")]
    assert sorted(pq.read_table(written).to_pylist(), key=str) == sorted(expected, key=str)


def test_events_in_any_order_give_the_same_importance_within_its_certificate(
    log: Path, replayed: Path, tmp_path: Path
) -> None:
    events = list(events_of(log))
    random.Random(5).shuffle(events)
    saved = Saved(tmp_path)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        saved.save(pipeline | beam.Create(events, reshuffle=False) | AdaptiveOpic())
    found = {one["page"]: one for one in saved.records("importance")}
    expected = {one["page"]: one for one in records_of(replayed / "importance.jsonl")}
    assert found.keys() == expected.keys()
    bound = sum(next(iter(some.values()))["certificate"] for some in (found, expected))
    assert sum(abs(found[page]["importance"] - expected[page]["importance"]) for page in found) <= bound < 0.01


def test_a_worker_that_loses_its_ledger_makes_it_again_from_state(
    log: Path, replayed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, kept = KeepLedger.keep, 0

    def forgetful(self: KeepLedger, *given: Any) -> Any:
        nonlocal kept
        kept += 1
        runs.close_run(self._run)
        return (yield from keep(self, *given))

    monkeypatch.setattr(KeepLedger, "keep", forgetful)
    monkeypatch.setattr("opicflow.pipelines.replay.events._BATCH_BYTES", 10_000)
    saved = Saved(tmp_path)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        lines = pipeline | beam.io.ReadFromText(str(log), coder=beam.coders.BytesCoder())
        saved.save(lines | AdaptiveOpic())
    assert_same(saved, replayed)
    assert kept > 10


def test_results_are_published_while_events_come(log: Path, tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        lines = pipeline | beam.io.ReadFromText(str(log), coder=beam.coders.BytesCoder())
        saved.save(lines | AdaptiveOpic(LedgerConfig(history=Interpolation()), publications=True))
    published = saved.records("importance")
    assert len({one["event_time"] for one in published}) > 3
    assert len(published) > len({one["page"] for one in published})


def test_the_ledger_has_the_page_ids_of_the_rules(log: Path, replayed: Path, tmp_path: Path) -> None:
    assert AdaptiveOpic()._settings.rules.page_ids.is_public
    rules, saved = Rules(page_ids=PageIds.with_secret(b"a key of thirty-two bytes or more")), Saved(tmp_path)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        lines = pipeline | beam.io.ReadFromText(str(log), coder=beam.coders.BytesCoder())
        saved.save(lines | AdaptiveOpic(rules=rules))
    found = {one["url"]: one for one in saved.records("importance")}
    assert {url: one["importance"] for url, one in found.items()} == pytest.approx(
        {one["url"]: one["importance"] for one in records_of(replayed / "importance.jsonl")}, abs=1e-4
    )
    assert all(int(one["page"], 16) == rules.page_ids.of(url.encode()) for url, one in found.items())


def test_rules_and_ledger_have_the_same_categories() -> None:
    with pytest.raises(ConfigRefused, match="other categories of pages than the ledger"):
        AdaptiveOpic(rules=Rules(categories=Categories(by_media=True)))


def test_a_decoded_batch_passes_no_line_before_it() -> None:
    batch = DecodedBatch("x", 0, 1, 1, *[None] * 2)  # type: ignore[arg-type]
    decode = DecodeEvents(ReplaySettings(ReplayConfig(), Rules(), {}, "run"))
    decode.setup()
    decode.start_bundle()
    assert list(decode.process(b'{"url": "https://a.example/"}')) == []
    first, second = decode.process(batch)
    assert (len(first.decoded.events), second.source) == (1, "x")


def test_what_cannot_be_an_event_ends_the_pipeline_with_a_line() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | beam.Create([7]) | AdaptiveOpic()
    with pytest.raises(Exception, match="a crawl event is a line of JSON, a dict or a decoded batch, not int"):
        pipeline.run().wait_until_finish()


def test_the_card_is_found_in_the_stages_of_the_transform(log: Path) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | beam.Create([]) | AdaptiveOpic()
    labels = [part.full_label for part in pipeline.transforms_stack[0].parts[1].parts]
    stages = ["Decode", "Route", "KeyByPage", "KeepLedger", "PublishImportance", "PublishSchedule", "PublishOrders"]
    assert [label.rpartition("/")[2] for label in labels if label.rpartition("/")[2] in stages] == stages


def test_a_runner_is_shown_the_settings_of_the_ledger() -> None:
    shown = {item.key: item.value for item in DisplayData.create_from(AdaptiveOpic()).items}
    assert "certified" in shown["history"] and shown["damping"]
