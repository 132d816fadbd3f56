package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/** A stream. Its planner keeps the state and writes the offsets, in the format of the Python source. */
final class MsmqStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private final MsmqScan scan;
  private final Planner planner = Planner.take();
  private volatile JsonNode reported;

  MsmqStream(MsmqScan scan) {
    this.scan = scan;
    try {
      planner.call("stream", a -> a.putPOJO("options", scan.options()).put("schema", scan.columns().json()));
    } catch (RuntimeException error) {
      planner.close(); // Spark stops only a stream that exists
      throw error;
    }
  }

  /** An offset as the Python source writes it. */
  private static final class Position extends Offset {
    private final String json;

    private Position(String json) {
      this.json = json;
    }

    @Override
    public String json() {
      return json;
    }
  }

  @Override
  public Offset initialOffset() {
    return new Position(planner.call("initial", a -> a).asText());
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new Position(json);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    JsonNode rows = planner.call("limit", a -> a);
    return rows.isNull() ? ReadLimit.allAvailable() : ReadLimit.maxRows(rows.asLong());
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    planner.call("available", a -> a);
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("latestOffset requires a limit");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    Long rows = limit instanceof ReadMaxRows most ? most.maxRows() : null;
    return new Position(planner.call("latest", a -> a.put("start", start.json()).put("rows", rows)).asText());
  }

  @Override
  public Offset reportLatestOffset() {
    JsonNode found = planner.call("report", a -> a);
    if (found.isNull()) {
      return null;
    }
    try {
      reported = Planner.JSON.readTree(found.asText());
    } catch (java.io.IOException error) {
      throw new IllegalStateException(error);
    }
    return new Position(found.asText());
  }

  /** Query progress: the number of messages waiting after the batch. */
  @Override
  public Map<String, String> metrics(Optional<Offset> latestConsumedOffset) {
    JsonNode last = reported;
    if (last == null) {
      return Map.of();
    }
    long lag = 0;
    for (Iterator<JsonNode> queues = last.elements(); queues.hasNext(); ) {
      lag += queues.next().path("lag").asLong();
    }
    return Map.of("lag", Long.toString(lag), "queues", Integer.toString(last.size()));
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return MsmqScan.partitions(planner.call("batch", a -> a.put("start", start.json()).put("end", end.json())));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return scan.createReaderFactory();
  }

  @Override
  public void commit(Offset end) {
    planner.call("commit", a -> a.put("end", end.json()));
  }

  @Override
  public void stop() {
    planner.end(); // a call may still be waiting for an unreachable queue manager
  }
}
