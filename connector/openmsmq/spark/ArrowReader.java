package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Reads the rows of one partition. A read that breaks off resumes after its last row. */
final class ArrowReader implements PartitionReader<ColumnarBatch> {
  private static final Logger LOGGER = LoggerFactory.getLogger(ArrowReader.class);
  private static final BufferAllocator ROOT = new RootAllocator();
  private static final String SEQUENCE = "sequence";
  private static final String HOST = "host"; // additional column for several queue managers

  /**
   * A range of one queue, as the planner describes it.
   *
   * @param ticket the request without its columns.
   * @param count number of planned messages.
   * @param which description of the range for errors.
   * @param fails whether fewer messages than planned are an error.
   */
  record Partition(String host, int port, String ticket, long count, String which, boolean fails)
      implements InputPartition {}

  /** Creates the readers on the executors. */
  record Factory(Connection.Access access, StructType columns, long limit) implements PartitionReaderFactory {
    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return new ArrowReader((Partition) partition, this);
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("this source reads columns");
    }
  }

  private final Partition partition;
  private final Connection.Access access;
  private final long limit;
  private final String[] names; // as spelled by the queue manager
  private final ObjectNode ticket;
  private final Retry retry;
  private final BufferAllocator allocator = ROOT.newChildAllocator("msmq", 0, Long.MAX_VALUE);
  private Connection connection;
  private ArrowStreamReader stream;
  private ColumnarBatch batch;
  private long rows;
  private long messages;
  private boolean isResumed; // after rows of an earlier connection
  private boolean isFinished;
  private final List<String> damaged = new ArrayList<>();

  private ArrowReader(Partition partition, Factory factory) {
    this.partition = partition;
    access = factory.access();
    limit = factory.limit();
    names = factory.columns().fieldNames().clone();
    retry = new Retry(access.retrySeconds(), partition.host() + ":" + partition.port());
    try {
      ticket = (ObjectNode) Planner.JSON.readTree(partition.ticket());
    } catch (IOException error) {
      throw new IllegalArgumentException(error);
    }
    ArrayNode asked = ticket.putArray("columns");
    for (int i = 0; i < names.length; i++) {
      names[i] = names[i].toLowerCase(Locale.ROOT);
      if (!names[i].equals(HOST)) {
        asked.add(names[i]);
      }
    }
    if (!List.of(names).contains(SEQUENCE)) {
      asked.add(SEQUENCE); // needed to resume
    }
  }

  @Override
  public boolean next() throws IOException {
    while (!isFinished && rows < limit) {
      try {
        if (connection == null) {
          connect();
        }
        if (stream.loadNextBatch()) {
          retry.answered();
          take(stream.getVectorSchemaRoot());
          return true;
        }
        finish(connection.line());
      } catch (MsmqException error) {
        if (partition.fails() || !error.isMissingQueue()) {
          throw error;
        }
        finish(Planner.JSON.createObjectNode());
      } catch (IOException error) {
        disconnect();
        retry.pause(error);
      }
    }
    return false;
  }

  private void connect() throws IOException {
    connection = new Connection(partition.host(), partition.port(), access, "read", ticket.toString());
    stream = new ArrowStreamReader(connection, allocator);
    batch = null;
    isResumed = messages > 0;
  }

  private void disconnect() throws IOException {
    try {
      if (stream != null) {
        stream.close(false);
      }
      if (connection != null) {
        connection.close();
      }
    } finally {
      stream = null;
      connection = null;
    }
  }

  private void take(VectorSchemaRoot root) {
    int count = root.getRowCount();
    if (batch == null) {
      ColumnVector[] vectors = new ColumnVector[names.length];
      for (int i = 0; i < names.length; i++) {
        vectors[i] = names[i].equals(HOST) ? host() : new ArrowColumnVector(root.getVector(names[i]));
      }
      batch = new ColumnarBatch(vectors);
    }
    batch.setNumRows((int) Math.min(count, limit - rows));
    rows += count;
    messages += count;
    ticket.put("start", ((BigIntVector) root.getVector(SEQUENCE)).get(count - 1));
  }

  private ColumnVector host() {
    ConstantColumnVector vector = new ConstantColumnVector(1, DataTypes.StringType);
    vector.setUtf8String(UTF8String.fromString(partition.host()));
    return vector;
  }

  /** Handle the end of the read: compare it with the plan. */
  private void finish(JsonNode end) {
    isFinished = true;
    if (end.has("odd")) {
      LOGGER.warn("{} of {} messages {}: column text is null or has U+FFFD, because their bodies do not match decode={}",
          end.get("odd").asLong(), messages, partition.which(), ticket.get("decode").asText());
    }
    end.path("damaged").forEach(key -> damaged.add("0x" + Long.toHexString(key.asLong())));
    long readable = messages(end);
    String keys = String.join(", ", damaged.subList(0, Math.min(damaged.size(), 10)));
    if (readable < partition.count()) {
      String unreadable = damaged.isEmpty()
          ? "" : String.format(", %d of them can't be decoded (by lookup id: %s)", damaged.size(), keys);
      String what = String.format("%d of %d messages %s are gone since the read was planned%s",
          partition.count() - readable, partition.count(), partition.which(), unreadable);
      if (partition.fails()) {
        throw new IllegalStateException("DataLoss: " + what + "; with failOnDataLoss=false, the read continues without them");
      }
      LOGGER.warn("{}; failOnDataLoss=false: going on without them", what);
    } else if (!damaged.isEmpty()) {
      LOGGER.warn("{} messages {} can't be decoded and are left out: {}", damaged.size(), partition.which(), keys);
    }
  }

  /**
   * Returns the number of messages read; a server that selects reports the number before selection. That number is lost
   * with a connection, so a read that was resumed counts as complete.
   */
  private long messages(JsonNode end) {
    boolean selects = ticket.has("arrived_from") || ticket.has("arrived_until");
    if (selects && isResumed) {
      return partition.count();
    }
    return selects ? end.path("messages").asLong() - end.path("damaged").size() : messages;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    try {
      disconnect();
    } finally {
      allocator.close();
    }
  }
}
