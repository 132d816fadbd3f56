package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The format {@code msmq}: queues as tables and streams. */
public final class MsmqSource implements TableProvider, DataSourceRegister {
  @Override
  public String shortName() {
    return "msmq";
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    JsonNode schema = Planner.ask("schema", a -> a.putPOJO("options", options.asCaseSensitiveMap()));
    return (StructType) DataType.fromJson(schema.toString());
  }

  /** Returns a table whose columns may all be null: nothing enforces NOT NULL of a user's schema. */
  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new MsmqTable(schema.asNullable(), properties);
  }
}
