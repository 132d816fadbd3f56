package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A table of queues. The connector delegates what it does not support to the Python source of the same name. */
final class MsmqTable implements SupportsRead, SupportsWrite {
  private static final Logger LOGGER = LoggerFactory.getLogger(MsmqTable.class);

  /** Session setting; with {@code false}, the Python source reads and writes everything. */
  private static final String SETTING = "spark.openmsmq.connector";

  private final StructType schema;
  private final Map<String, String> properties;
  private final Snapshot snapshot = new Snapshot();
  private Boolean suits;

  MsmqTable(StructType schema, Map<String, String> properties) {
    this.schema = schema;
    this.properties = properties;
  }

  @Override
  public String name() {
    return "msmq";
  }

  @Override
  public Column[] columns() {
    return Arrays.stream(schema.fields())
        .map(field -> Column.create(field.name(), field.dataType(), field.nullable()))
        .toArray(Column[]::new);
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(
        TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_WRITE,
        TableCapability.STREAMING_WRITE, TableCapability.TRUNCATE);
  }

  private static boolean isOff() {
    String value = SparkSession.active().conf().get(SETTING, "true");
    if (!value.equalsIgnoreCase("true") && !value.equalsIgnoreCase("false")) {
      throw new IllegalArgumentException("OptionError: " + SETTING + " is '" + value + "', allowed: true, false");
    }
    return value.equalsIgnoreCase("false");
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    Map<String, String> given = options.asCaseSensitiveMap();
    if (isOff() || !suits(given)) {
      return ((SupportsRead) python()).newScanBuilder(options);
    }
    return new MsmqScanBuilder(schema, given, snapshot);
  }

  /** Whether the connector can read the table; determined once. */
  private synchronized boolean suits(Map<String, String> options) {
    if (suits == null) {
      String reason = Planner.ask("suits", a -> a.putPOJO("options", options)).asText();
      suits = reason.isEmpty();
      if (!suits) {
        LOGGER.warn("format msmq: reading with Python workers instead of the connector: {}", reason);
      }
    }
    return suits;
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    WriteBuilder builder = ((SupportsWrite) python()).newWriteBuilder(info);
    return isOff() ? builder : new MsmqWrite(builder, info);
  }

  /** Ends of the queues at the first read of the table; all its batch reads end there. */
  static final class Snapshot {
    private JsonNode ends;

    synchronized JsonNode of(Map<String, String> options, StructType schema) {
      if (ends == null) {
        ends = Planner.ask("ends", a -> a.putPOJO("options", options).put("schema", schema.json()));
      }
      return ends;
    }
  }

  private Table python() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(name());
    return source.getTable(schema, new Transform[0], properties);
  }
}
