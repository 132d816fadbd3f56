package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Uploads the rows of one task to a stage. A short Arrow stream is kept in memory, so that an interrupted upload can be
 * repeated.
 */
final class ArrowWriter implements DataWriter<InternalRow> {
  private static final BufferAllocator ROOT = new RootAllocator();
  private static final int ROWS = 2048; // per record batch
  private static final long BATCH_BYTES = 4 << 20;
  private static final long HELD_BYTES = 64 << 20;
  private static final String BATCH_ID = "streaming.sql.batchId"; // local property of micro-batch tasks

  /** Rows staged by a task; no handle if it had none. */
  record Stage(String handle, long rows) implements WriterCommitMessage {}

  /**
   * Creates the writers on the executors.
   *
   * @param stage the request without batch, partition and attempt.
   */
  record Factory(String host, int port, Connection.Access access, String stage, StructType schema)
      implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long batch) {
      try {
        ObjectNode request = (ObjectNode) Planner.JSON.readTree(stage);
        if (request.has("query") && TaskContext.get().getLocalProperty(BATCH_ID) == null) {
          throw new IllegalArgumentException("OptionError: a continuous trigger writes nothing to this sink; allowed: "
              + "processingTime, availableNow");
        }
        request.put("batch", batch).put("partition", partition);
        return new ArrowWriter(this, request, partition, task);
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }
  }

  private final Factory factory;
  private final ObjectNode request;
  private final int partition;
  private final long task;
  private final Retry retry;
  private final BufferAllocator allocator = ROOT.newChildAllocator("msmq", 0, Long.MAX_VALUE);
  private final RowColumns columns;
  private final VectorSchemaRoot root;
  private final ByteArrayOutputStream pending = new ByteArrayOutputStream(); // bytes of the stream not yet sent
  private final ArrowStreamWriter stream;
  private List<byte[]> held = new ArrayList<>(); // the whole stream so far; null beyond HELD_BYTES
  private long heldBytes;
  private Connection connection;
  private int tries;
  private int rows;
  private long written;

  private ArrowWriter(Factory factory, ObjectNode request, int partition, long task) {
    this.factory = factory;
    this.request = request;
    this.partition = partition;
    this.task = task;
    retry = new Retry(factory.access().retrySeconds(), factory.host() + ":" + factory.port());
    columns = new RowColumns(factory.schema());
    root = VectorSchemaRoot.create(columns.schema(), allocator);
    columns.bind(root);
    stream = new ArrowStreamWriter(root, null, Channels.newChannel(pending));
  }

  @Override
  public void write(InternalRow row) throws IOException {
    String refused = columns.set(rows, row);
    if (refused != null) {
      throw new IllegalArgumentException(
          String.format("partition %d: row %d: %s", partition, written + rows, refused));
    }
    rows++;
    if (rows == ROWS || columns.bytes() >= BATCH_BYTES) {
      flush();
    }
  }

  /** Send the current rows as a record batch. */
  private void flush() throws IOException {
    root.setRowCount(rows);
    stream.writeBatch();
    written += rows;
    rows = 0;
    columns.reset();
    send();
  }

  /** Send the pending bytes; connect or reconnect if necessary. */
  private void send() throws IOException {
    byte[] bytes = pending.toByteArray();
    pending.reset();
    heldBytes += bytes.length;
    if (held != null && heldBytes <= HELD_BYTES) {
      held.add(bytes);
    } else {
      held = null;
    }
    attempt(() -> {
      if (connection != null) {
        connection.write(ByteBuffer.wrap(bytes));
      } else {
        connect(bytes);
      }
      return null;
    });
  }

  private void connect(byte[] bytes) throws IOException {
    request.put("attempt", task + "." + tries++);
    connection = new Connection(factory.host(), factory.port(), factory.access(), "write", request.toString());
    for (byte[] part : held == null ? List.of(bytes) : held) {
      connection.write(ByteBuffer.wrap(part));
    }
  }

  /** A step of an upload, which fails if the connection does. */
  private interface Step {
    JsonNode run() throws IOException;
  }

  private JsonNode attempt(Step step) throws IOException {
    while (true) {
      try {
        JsonNode answer = step.run();
        retry.answered();
        return answer;
      } catch (MsmqException error) {
        throw error.in("partition " + partition);
      } catch (IOException error) {
        disconnect();
        if (held == null) { // rows staged by the failed attempt are dropped when its batch ends
          throw new IOException(String.format(
              "partition %d: %s; more than %d MiB of its rows were already sent, so only a new attempt of the task "
                  + "can repeat them (spark.task.maxFailures)", partition, error.getMessage(), HELD_BYTES >> 20), error);
        }
        retry.pause(error);
      }
    }
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    if (rows == 0 && written == 0) {
      return new Stage(null, 0);
    }
    if (rows > 0) {
      flush();
    }
    stream.end();
    send();
    JsonNode done = attempt(() -> {
      if (connection == null) {
        connect(null); // the held bytes
      }
      return connection.line();
    });
    return new Stage(done.get("handle").asText(), done.get("rows").asLong());
  }

  /** Close the connection. The queue manager drops a stage whose stream is incomplete. */
  @Override
  public void abort() throws IOException {
    disconnect();
  }

  private void disconnect() throws IOException {
    if (connection != null) {
      connection.close();
      connection = null;
    }
  }

  @Override
  public void close() throws IOException {
    try {
      disconnect();
    } finally {
      stream.close();
      root.close();
      allocator.close();
    }
  }
}
