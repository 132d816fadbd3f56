"""Ready jobs on the data source: `openmsmq pipeline` as functions. See docs/pipeline.md."""

from __future__ import annotations

from openmsmq.spark.jobs.archived import read_archive
from openmsmq.spark.jobs.archiving import Archived, ArchivedBatch, archive
from openmsmq.spark.jobs.compaction import Compacted, compact
from openmsmq.spark.jobs.dead_letters import DeadLetters, Returned, dead_letters, return_to_source
from openmsmq.spark.jobs.location import Server
from openmsmq.spark.jobs.replaying import Replayed, replay, selection
from openmsmq.spark.jobs.session import PipelineError, session
from openmsmq.spark.jobs.traffic import Traffic, archived_traffic, live_traffic

__all__ = [
    "Archived",
    "ArchivedBatch",
    "Compacted",
    "DeadLetters",
    "PipelineError",
    "Replayed",
    "Returned",
    "Server",
    "Traffic",
    "archive",
    "archived_traffic",
    "compact",
    "dead_letters",
    "live_traffic",
    "read_archive",
    "replay",
    "return_to_source",
    "selection",
    "session",
]
