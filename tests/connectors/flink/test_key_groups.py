"""Keys that Flink spreads over its slots: by Flink's own hash, and evenly."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from deploy.services.artifacts import ServicesMissing, artifact, java
from opicflow.connectors.flink.key_groups import KEY_GROUPS, SpreadKeys, key_group, number_of
from support.services import missing

FLINK = """
import java.nio.ByteBuffer;
import org.apache.beam.sdk.coders.*;
import org.apache.beam.sdk.util.CoderUtils;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
public class Groups {
  public static void main(String[] keys) throws Exception {
    for (String key : keys) {
      byte[] bytes = CoderUtils.encodeToByteArray(VarLongCoder.of(), Long.valueOf(key), Coder.Context.NESTED);
      System.out.println(KeyGroupRangeAssignment.assignToKeyGroup(ByteBuffer.wrap(bytes), 128));
    }
  }
}
"""


def slot_of(group: int, slots: int) -> int:
    """As `KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup` has it."""
    return group * slots // KEY_GROUPS


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 6, 8, 16])
@pytest.mark.parametrize("per_slot", [1, 2, 3])
def test_shards_are_spread_evenly_over_slots(slots: int, per_slot: int) -> None:
    keys = SpreadKeys(slots * per_slot)
    found = Counter(slot_of(key_group(keys(number)), slots) for number in range(slots * per_slot))
    assert found == dict.fromkeys(range(slots), per_slot)


@pytest.mark.parametrize("slots", [1, 2, 4, 8])
def test_partitions_that_grow_in_number_keep_their_keys_and_are_spread(slots: int) -> None:
    keys = SpreadKeys()
    for count in (slots, 2 * slots, 4 * slots):
        found = Counter(slot_of(key_group(keys(number)), slots) for number in range(count))
        assert set(found.values()) == {count // slots}, "whatever their number was before"


def test_a_key_has_its_number() -> None:
    for keys in (SpreadKeys(), SpreadKeys(5), SpreadKeys(1000)):
        assert [number_of(keys(number)) for number in range(1000)] == list(range(1000))
    assert number_of(17) == 17


def test_groups_are_those_of_flink() -> None:
    known = {0: 123, 1: 36, 2: 29, 3: 125, 133: 25}  # printed by Flink 1.19.0
    assert {key: key_group(key) for key in known} == known


def test_groups_are_those_of_the_flink_that_is_installed(tmp_path: Path) -> None:
    """All keys of a stream with many shards, by Flink's own code."""
    try:
        program_of_java, jars = java(), artifact("flink", "Flink", lambda words: None)
    except ServicesMissing as problem:
        missing(str(problem))
    program = tmp_path / "Groups.java"
    program.write_text(FLINK, encoding="utf-8")
    keys = [SpreadKeys(64)(number) for number in range(64)] + [SpreadKeys()(number) for number in range(200)]
    words = [program_of_java, "-cp", f"{jars}/*", str(program), *map(str, keys)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert list(map(int, done.stdout.split())) == [key_group(key) for key in keys]
