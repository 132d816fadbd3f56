package openmsmq.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** Converts predicates to the planner's JSON. */
final class Filters {
  private Filters() {}

  /** Convert a comparison of a column with literals, or its negation; null for any other predicate. */
  static ObjectNode json(Predicate predicate) {
    ObjectNode json = Planner.JSON.createObjectNode().put("kind", predicate.name());
    Expression[] children = predicate.children();
    if (predicate.name().equals("NOT") && children[0] instanceof Predicate inner) {
      ObjectNode child = json(inner);
      return child == null ? null : json.set("child", child);
    }
    if (children.length == 0 || !(children[0] instanceof NamedReference column) || column.fieldNames().length != 1) {
      return null;
    }
    ArrayNode values = json.put("column", column.fieldNames()[0]).putArray("values");
    for (int i = 1; i < children.length; i++) {
      if (!(children[i] instanceof Literal<?> literal) || !add(values, literal)) {
        return null;
      }
    }
    return json;
  }

  private static boolean add(ArrayNode values, Literal<?> literal) {
    Object value = literal.value();
    if (value == null) {
      values.addNull();
    } else if (value instanceof UTF8String) {
      values.add(value.toString());
    } else if (literal.dataType().equals(DataTypes.TimestampType)) {
      values.addObject().put("time", (Long) value);
    } else if (value instanceof Long || value instanceof Integer) {
      values.add(((Number) value).longValue());
    } else {
      return false;
    }
    return true;
  }
}
