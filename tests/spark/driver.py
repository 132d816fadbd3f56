"""A job that a test kills: `driver.py FLIGHT_PORT QUEUE DIRECTORY ENDINGS`.

Moves the messages of `QUEUE-lake` to Parquet files and, at the same time, those of `QUEUE-copy` to `QUEUE-copied`,
where the correlation identifier of each copy is the identifier of its message. Prints `ready` and starts after a line
of input. At the end, it writes the identifiers in the lake to the file ENDINGS and prints `done`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ["SPARK_LOCAL_DIRS"] = str(Path(sys.argv[3], "scratch"))

from pyspark.sql import SparkSession

port, queue, directory, endings = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2,3]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")  # see docs/spark.md
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
reach = {"flightPort": port, "mode": "receive", "maxRecordsPerTrigger": "200"}
lake, copy = (
    spark.readStream.format("msmq").options(queue=f"{queue}-{kind}", consumerGroup=kind, **reach).load()
    for kind in ("lake", "copy")
)
copy = copy.selectExpr("body", "label", "recoverable", "message_id AS correlation_id")
print("ready", flush=True)
sys.stdin.readline()
writers = {
    "lake": lake.writeStream.format("parquet").option("path", directory + "/out"),
    "copy": copy.writeStream.format("msmq").options(flightPort=port, defaultQueue=f"{queue}-copied", sinkId=queue),
}
running = [
    writer.option("checkpointLocation", f"{directory}/checkpoint of {kind}").trigger(availableNow=True).start()
    for kind, writer in writers.items()
]
for stream in running:
    stream.awaitTermination()
identifiers = [row.message_id for row in spark.read.parquet(directory + "/out").select("message_id").collect()]
Path(endings).write_text("\n".join(identifiers))
print("done", flush=True)
