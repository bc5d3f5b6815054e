"""Cash and history: the pure core that turns visits into page importance (docs/reference/ledger.md).

>>> from opicflow.pipelines.ledger import ItemWriter, Ledger
>>> ledger = Ledger()
>>> _ = ledger.apply(ItemWriter().visit(1, [2, 3]).visit(2, [1]).visit(3, [2]).entry())
>>> ledger.audit().drift
0
"""

from opicflow.pipelines.ledger.cash.balance import Balance
from opicflow.pipelines.ledger.cash.certified.residuals import Settled
from opicflow.pipelines.ledger.config import (
    HISTORIES,
    ORDINARY_CLASS_WEIGHT,
    ORDINARY_LINK_WEIGHT,
    UNITS_PER_PAGE,
    Absorbing,
    All,
    Certified,
    DomainLimits,
    Fixed,
    History,
    ImprovedFixed,
    Interpolation,
    LedgerConfig,
    PaperInterpolation,
    RefreshConfig,
    Variable,
    history_name,
)
from opicflow.pipelines.ledger.entries import (
    NO_CATEGORY,
    START,
    ControlEntry,
    CrawlEntry,
    CrawlItems,
    Fate,
    Gossip,
    ItemWriter,
    Kind,
    LogEntry,
    LogPosition,
    Outcome,
    PageLink,
    PolicyEntry,
    RemovalReason,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.errors import (
    ConfigRefused,
    EntryRefused,
    LedgerBroken,
    LedgerError,
    SnapshotRefused,
)
from opicflow.pipelines.ledger.estimates import Estimates
from opicflow.pipelines.ledger.ledger import Applied, Ledger
from opicflow.pipelines.ledger.plan.planner import Plan
from opicflow.pipelines.ledger.shards.snapshot import Chunk

__all__ = [
    "HISTORIES",
    "NO_CATEGORY",
    "ORDINARY_CLASS_WEIGHT",
    "ORDINARY_LINK_WEIGHT",
    "START",
    "UNITS_PER_PAGE",
    "Absorbing",
    "All",
    "Applied",
    "Balance",
    "Certified",
    "Chunk",
    "ConfigRefused",
    "ControlEntry",
    "CrawlEntry",
    "CrawlItems",
    "DomainLimits",
    "EntryRefused",
    "Estimates",
    "Fate",
    "Fixed",
    "Gossip",
    "History",
    "ImprovedFixed",
    "Interpolation",
    "ItemWriter",
    "Kind",
    "Ledger",
    "LedgerBroken",
    "LedgerConfig",
    "LedgerError",
    "LogEntry",
    "LogPosition",
    "Outcome",
    "PageLink",
    "PaperInterpolation",
    "Plan",
    "PolicyEntry",
    "RefreshConfig",
    "RemovalReason",
    "Settled",
    "SnapshotRefused",
    "TickEntry",
    "TransfersEntry",
    "Variable",
    "history_name",
]
