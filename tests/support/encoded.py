"""Events of a batch that were encoded all at once, beside the same events encoded one by one."""

from __future__ import annotations

from opicflow.connectors.files.event_encoding import EncodedEvents, encode_items
from opicflow.connectors.files.log_reader import Batch


def check_encoding(batch: Batch) -> EncodedEvents:
    """Compare what a batch encodes with its events and rejects; return it."""
    found, expected = batch.encode(b"first"), encode_items(batch.items(), b"first")
    assert found.offset.tolist() == expected.offset.tolist()
    assert found.time_ms.tolist() == expected.time_ms.tolist()
    assert list(found.urls) == list(expected.urls)
    assert found.hashes.tolist() == expected.hashes.tolist()
    assert list(found.values) == list(expected.values)
    assert found.rejects == expected.rejects
    return found
