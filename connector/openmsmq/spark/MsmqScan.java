package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A read of queues: a snapshot, or a stream. */
record MsmqScan(
    StructType columns, Map<String, String> options, Integer limit, Connection.Access access, ArrayNode filters,
    MsmqTable.Snapshot snapshot)
    implements Scan, Batch {
  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return "msmq filters=" + filters + " limit=" + limit;
  }

  /** Omits the options, which may include a password. */
  @Override
  public String toString() {
    return description();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    JsonNode ends = snapshot.of(options, columns);
    return partitions(Planner.ask(
        "partitions", a -> arguments(a, options, columns, filters).put("limit", limit).set("ends", ends)));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ArrowReader.Factory(access, columns, limit == null ? Long.MAX_VALUE : limit);
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return new MsmqStream(this);
  }

  static ObjectNode arguments(
      ObjectNode arguments, Map<String, String> options, StructType columns, ArrayNode filters) {
    arguments.putPOJO("options", options).put("schema", columns.json()).set("filters", filters);
    return arguments;
  }

  static InputPartition[] partitions(JsonNode found) {
    InputPartition[] partitions = new InputPartition[found.size()];
    for (int i = 0; i < partitions.length; i++) {
      JsonNode one = found.get(i);
      partitions[i] = new ArrowReader.Partition(
          one.get("host").asText(), one.get("port").asInt(), one.get("ticket").toString(), one.get("count").asLong(),
          one.get("which").asText(), one.get("fails").asBoolean());
    }
    return partitions;
  }
}
