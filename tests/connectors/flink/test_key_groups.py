"""Keys that Flink spreads over its slots: by Flink's own hash, and evenly."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from deploy.services.artifacts import ServicesMissing, artifact, java
from opicflow.connectors.flink.key_groups import KEY_GROUPS, SpreadKeys, key_groups, number_of
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
      System.out.println(KeyGroupRangeAssignment.assignToKeyGroup(keyOf(ByteBuffer.wrap(bytes)), 128));
    }
  }
  static Object keyOf(ByteBuffer bytes) throws Exception {
    try {
      Class<?> newer = Class.forName("org.apache.beam.runners.flink.adapter.FlinkKey");
      return newer.getMethod("of", ByteBuffer.class).invoke(null, bytes);
    } catch (ClassNotFoundException older) {
      return bytes;
    }
  }
}
"""


def groups(keys: list[int]) -> tuple[list[int], list[int]]:
    older, newer = key_groups(np.array(keys, np.uint64))
    return older.tolist(), newer.tolist()


def keys_of_slots(keys: list[int], slots: int) -> list[Counter[int]]:
    """Return how many keys each slot gets, by older and by newer runners of Beam.

    As `KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup` has it.
    """
    return [Counter(group * slots // KEY_GROUPS for group in found) for found in groups(keys)]


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 6, 8, 16])
@pytest.mark.parametrize("per_slot", [1, 2, 3])
def test_shards_are_spread_evenly_over_slots(slots: int, per_slot: int) -> None:
    keys = SpreadKeys(slots * per_slot)
    for found in keys_of_slots([keys(number) for number in range(slots * per_slot)], slots):
        assert found == dict.fromkeys(range(slots), per_slot)


@pytest.mark.parametrize("slots", [1, 2, 4, 8])
def test_partitions_that_grow_in_number_keep_their_keys_and_are_spread(slots: int) -> None:
    keys = SpreadKeys()
    for count in (slots, 2 * slots, 4 * slots):
        for found in keys_of_slots([keys(number) for number in range(count)], slots):
            assert set(found.values()) == {count // slots}, "whatever their number was before"


def test_a_key_has_its_number() -> None:
    for keys in (SpreadKeys(), SpreadKeys(5), SpreadKeys(1000)):
        assert [number_of(keys(number)) for number in range(1000)] == list(range(1000))
    assert number_of(17) == 17


def test_groups_are_those_of_flink() -> None:
    known = {0: 123, 1: 36, 2: 29, 3: 125, 133: 25}  # printed by Flink 1.19.0
    assert groups(list(known))[0] == list(known.values())
    known = {
        0: 46,
        1: 122,
        2: 125,
        3: 68,
        133: 95,
        1_048_577_000: 95,
        99_999_999_999: 28,
    }  # printed by Beam's runner 2.70.0
    assert groups(list(known))[1] == list(known.values())


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
    is_newer = any(jars.glob("beam-runners-flink-*-2.[7-9]*.jar"))
    assert list(map(int, done.stdout.split())) == groups(keys)[is_newer]
