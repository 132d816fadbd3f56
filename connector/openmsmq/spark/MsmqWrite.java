package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A write: each task stages its rows, and one transaction of the queue manager makes the stages of a batch visible. The
 * planner checks options and columns, and finalizes batches.
 */
final class MsmqWrite implements WriteBuilder, SupportsTruncate, Write {
  private static final Logger LOGGER = LoggerFactory.getLogger(MsmqWrite.class);

  /**
   * Disables Spark's commit coordinator. A batch consists of the stages that the driver names, one per task, so a second
   * committed attempt is harmless. The coordinator rejects a new attempt until it knows that the last one failed, and
   * that error hides the cause.
   */
  private static final boolean NEEDS_COORDINATOR = false;

  private final WriteBuilder python; // the Python sink, for cases that the connector does not support
  private final LogicalWriteInfo info;
  private final Map<String, String> options;

  MsmqWrite(WriteBuilder python, LogicalWriteInfo info) {
    this.python = python;
    this.info = info;
    options = info.options().asCaseSensitiveMap();
  }

  @Override
  public WriteBuilder truncate() {
    return ((SupportsTruncate) python).truncate(); // raises the error
  }

  @Override
  public Write build() {
    return this;
  }

  @Override
  public BatchWrite toBatch() {
    Target target = target(false);
    return target == null ? python.build().toBatch() : new Batch(target);
  }

  @Override
  public StreamingWrite toStreaming() {
    Target target = target(true);
    return target == null ? python.build().toStreaming() : new Stream(target);
  }

  /** Destination of the rows; null if the Python sink must write them. */
  private Target target(boolean streaming) {
    JsonNode found = Planner.ask("target", a ->
        a.put("streaming", streaming).put("schema", info.schema().json()).putPOJO("options", options));
    if (!found.has("reason")) {
      return new Target(found, streaming ? info.queryId() : "");
    }
    LOGGER.warn("format msmq: writing with Python workers instead of the connector: {}", found.get("reason").asText());
    return null;
  }

  /** Destination of one write, and the actions that make it visible. */
  private final class Target {
    private final JsonNode found;
    private final String query; // identity of a streaming query; empty for a batch write
    private final String sink;
    private final KeepAlive keepAlive;

    private Target(JsonNode found, String query) {
      this.found = found;
      this.query = query;
      sink = found.get("stage").get("sink").asText();
      keepAlive = new KeepAlive(sink, options);
    }

    /** Return the factory of a batch's writers, and start to keep its stages alive. */
    private ArrowWriter.Factory begin() {
      keepAlive.start();
      ObjectNode stage = ((ObjectNode) found.get("stage")).deepCopy();
      if (!query.isEmpty()) {
        stage.put("query", query);
      }
      return new ArrowWriter.Factory(
          found.get("host").asText(), found.get("port").asInt(), new Connection.Access(options), stage.toString(),
          info.schema());
    }

    private void commit(long batch, WriterCommitMessage[] messages) {
      try {
        if (messages.length > 0) { // a batch without partitions has nothing to send
          act("finalize", messages, a -> a.put("batch", batch).put("query", query));
        }
      } finally {
        keepAlive.close();
      }
    }

    private void abort(WriterCommitMessage[] messages) {
      keepAlive.close();
      act("forget", messages, a -> a);
    }

    private void act(String call, WriterCommitMessage[] messages, UnaryOperator<ObjectNode> arguments) {
      Planner.ask(call, a -> {
        ArrayNode handles = arguments.apply(a).put("sink", sink).putPOJO("options", options).putArray("handles");
        Arrays.stream(messages).filter(Objects::nonNull) // null for a failed task
            .map(message -> ((ArrowWriter.Stage) message).handle()).filter(Objects::nonNull).forEach(handles::add);
        return a;
      });
    }
  }

  /** A batch write: sends all rows, or none. */
  private record Batch(Target target) implements BatchWrite {
    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
      ArrowWriter.Factory factory = target.begin();
      return (partition, task) -> factory.createWriter(partition, task, 0);
    }

    @Override
    public boolean useCommitCoordinator() {
      return NEEDS_COORDINATOR;
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      target.commit(0, messages);
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      target.abort(messages);
    }
  }

  /** A streaming write: sends each batch of the sink once. */
  private record Stream(Target target) implements StreamingWrite {
    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo physical) {
      return target.begin();
    }

    @Override
    public boolean useCommitCoordinator() {
      return NEEDS_COORDINATOR;
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
      target.commit(batch, messages);
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] messages) {
      target.abort(messages);
    }
  }
}
