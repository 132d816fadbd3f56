"""A job that a test kills: `driver.py FLIGHT_PORT KIND QUEUE DIRECTORY [ENDINGS]`.

Takes QUEUE's messages to Parquet files, or into the queue `QUEUE-copy`, where each copy has the identifier of its
message as its correlation identifier. Says `ready`, begins at a line of input, and says `done`; with ENDINGS it first
writes what is in the lake into that file. Kept small in the Java machine: it is started again and again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_DIRS"] = str(Path(sys.argv[4], "scratch"))

from pyspark.sql import SparkSession

port, kind, queue, directory = sys.argv[1:5]
spark = (
    SparkSession.builder.master("local[2,3]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")  # as docs/spark.md says
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
reach = {"flightPort": port, "consumerGroup": kind, "mode": "receive", "maxRecordsPerTrigger": "200"}
frame = spark.readStream.format("msmq").options(queue=queue, **reach).load()
print("ready", flush=True)
sys.stdin.readline()
if kind == "lake":
    writer = frame.writeStream.format("parquet").option("path", directory + "/out")
else:
    frame = frame.selectExpr("body", "label", "recoverable", "message_id AS correlation_id")
    writer = frame.writeStream.format("msmq")
    writer = writer.options(flightPort=port, defaultQueue=f"{queue}-copy", sinkId=queue)
writer.option("checkpointLocation", directory + "/checkpoint").trigger(availableNow=True).start().awaitTermination()
if len(sys.argv) > 5:
    identifiers = [row.message_id for row in spark.read.parquet(directory + "/out").select("message_id").collect()]
    Path(sys.argv[5]).write_text("\n".join(identifiers))
print("done", flush=True)
