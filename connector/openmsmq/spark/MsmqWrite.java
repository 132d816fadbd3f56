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
    return ((SupportsTruncate) python).truncate(); // which refuses
  }

  @Override
  public Write build() {
    return this;
  }

  @Override
  public BatchWrite toBatch() {
    JsonNode target = target(false);
    return target == null ? python.build().toBatch() : new Batch(target);
  }

  @Override
  public StreamingWrite toStreaming() {
    JsonNode target = target(true);
    return target == null ? python.build().toStreaming() : new Stream(target);
  }

  /** Destination of the rows; null if the Python sink must write them. */
  private JsonNode target(boolean streaming) {
    JsonNode found = Planner.ask("target", a ->
        a.put("streaming", streaming).put("schema", info.schema().json()).putPOJO("options", options));
    if (!found.has("reason")) {
      return found;
    }
    LOGGER.warn("format msmq: Python workers write, not the connector: {}", found.get("reason").asText());
    return null;
  }

  private ArrowWriter.Factory factory(JsonNode target, String query) {
    ObjectNode stage = ((ObjectNode) target.get("stage")).deepCopy();
    if (!query.isEmpty()) {
      stage.put("query", query);
    }
    return new ArrowWriter.Factory(
        target.get("host").asText(), target.get("port").asInt(), new Connection.Access(options), stage.toString(),
        info.schema());
  }

  private void finalizeStages(JsonNode target, long batch, WriterCommitMessage[] messages, String query) {
    if (messages.length > 0) { // a batch without partitions has nothing to send
      act("finalize", target, messages, a -> a.put("batch", batch).put("query", query));
    }
  }

  private void forget(JsonNode target, WriterCommitMessage[] messages) {
    act("forget", target, messages, a -> a);
  }

  private void act(
      String call, JsonNode target, WriterCommitMessage[] messages, UnaryOperator<ObjectNode> arguments) {
    Planner.ask(call, a -> {
      ArrayNode handles = arguments.apply(a).put("sink", sink(target)).putPOJO("options", options).putArray("handles");
      Arrays.stream(messages).filter(Objects::nonNull) // null for a failed task
          .map(message -> ((ArrowWriter.Stage) message).handle()).filter(Objects::nonNull).forEach(handles::add);
      return a;
    });
  }

  private static String sink(JsonNode target) {
    return target.get("stage").get("sink").asText();
  }

  /** A batch write: sends all rows, or none. */
  private final class Batch implements BatchWrite {
    private final JsonNode target;
    private final KeepAlive keepAlive;

    private Batch(JsonNode target) {
      this.target = target;
      keepAlive = new KeepAlive(sink(target), options);
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
      keepAlive.start();
      ArrowWriter.Factory factory = factory(target, "");
      return (partition, task) -> factory.createWriter(partition, task, 0);
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      try {
        finalizeStages(target, 0, messages, "");
      } finally {
        keepAlive.close();
      }
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      keepAlive.close();
      forget(target, messages);
    }
  }

  /** A streaming write: sends each batch of the sink once. */
  private final class Stream implements StreamingWrite {
    private final JsonNode target;
    private final KeepAlive keepAlive;

    private Stream(JsonNode target) {
      this.target = target;
      keepAlive = new KeepAlive(sink(target), options);
    }

    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo physical) {
      keepAlive.start();
      return factory(target, info.queryId());
    }

    @Override
    public boolean useCommitCoordinator() {
      return true;
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
      try {
        finalizeStages(target, batch, messages, info.queryId());
      } finally {
        keepAlive.close();
      }
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] messages) {
      keepAlive.close();
      forget(target, messages);
    }
  }
}
