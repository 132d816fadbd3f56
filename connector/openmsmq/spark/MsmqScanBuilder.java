package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** Collects what a query needs from the table: columns, filters, a limit, or only the number of rows. */
final class MsmqScanBuilder
    implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final Map<String, String> options;
  private final StructType table;
  private final MsmqTable.Snapshot snapshot;
  private StructType columns;
  private final ArrayNode filters = Planner.JSON.createArrayNode();
  private Predicate[] pushed = new Predicate[0];
  private Integer limit;
  private boolean counts;

  MsmqScanBuilder(StructType table, Map<String, String> options, MsmqTable.Snapshot snapshot) {
    this.snapshot = snapshot;
    this.table = table;
    this.columns = table;
    this.options = options;
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required;
  }

  /** Returns the predicates that Spark must still apply; the plan of a read may use them without guaranteeing them. */
  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    List<Predicate> known = new ArrayList<>();
    List<Predicate> rest = new ArrayList<>();
    for (Predicate predicate : predicates) {
      ObjectNode json = Filters.json(predicate);
      if (json == null) {
        rest.add(predicate);
      } else {
        known.add(predicate);
        filters.add(json);
      }
    }
    if (!known.isEmpty()) {
      JsonNode taken = Planner.ask("filters", this::arguments);
      List<Predicate> fulfilled = new ArrayList<>();
      for (int i = 0; i < known.size(); i++) {
        (taken.get(i).asBoolean() ? fulfilled : rest).add(known.get(i));
      }
      pushed = fulfilled.toArray(new Predicate[0]);
    }
    return rest.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed;
  }

  /** Accept a limit. Spark pushes one only if no filter is left to Spark. */
  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  /** Each partition has at most `limit` rows; Spark applies the total limit. */
  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return isCount(aggregation);
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    counts = isCount(aggregation);
    return counts;
  }

  /** A plan can count by positions, but not by arrival times, which are in the messages. */
  private boolean isCount(Aggregation aggregation) {
    boolean selects = options.keySet().stream().anyMatch("startingTimestamp"::equalsIgnoreCase);
    for (JsonNode filter : filters) {
      selects |= filter.path("column").asText().equalsIgnoreCase("arrival_time");
    }
    return !selects
        && aggregation.groupByExpressions().length == 0
        && aggregation.aggregateExpressions().length == 1
        && aggregation.aggregateExpressions()[0] instanceof CountStar;
  }

  @Override
  public Scan build() {
    if (counts) {
      JsonNode ends = snapshot.of(options, table);
      return new MsmqCount(Planner.ask("count", a -> arguments(a).set("ends", ends)).asLong());
    }
    return new MsmqScan(columns, options, limit, new Connection.Access(options), filters, snapshot);
  }

  private ObjectNode arguments(ObjectNode arguments) {
    return MsmqScan.arguments(arguments, options, table, filters);
  }
}
