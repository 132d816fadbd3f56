"""Ready jobs on the data source: `openmsmq pipeline` as functions. See docs/pipeline.md."""

from __future__ import annotations

from openmsmq.spark.jobs.archive import Archived, Batch, archive
from openmsmq.spark.jobs.archived import read_archive
from openmsmq.spark.jobs.compaction import Compacted, compact
from openmsmq.spark.jobs.server import Server
from openmsmq.spark.jobs.session import PipelineError, session

__all__ = [
    "Archived",
    "Batch",
    "Compacted",
    "PipelineError",
    "Server",
    "archive",
    "compact",
    "read_archive",
    "session",
]
