"""The configuration that a recorder is started with."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson


@dataclass(frozen=True)
class RecorderConfig:
    """The folder of the frontier, and the Kafka cluster that visits are sent to, if there is one."""

    folder: str
    brokers: str | None = None
    properties: str | None = None
    prefix: str = ""

    def to_json(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> RecorderConfig:
        return cls(**orjson.loads(text))
