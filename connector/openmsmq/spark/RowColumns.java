package openmsmq.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Converts Spark rows to Arrow vectors of an upload's columns. A text body becomes UTF-16 of type VT_BSTR, unless
 * the rows have a column {@code body_type}. The planner has checked the columns.
 */
final class RowColumns {
  private static final String BODY = "body";
  private static final String BODY_TYPE = "body_type";
  private static final int VT_BSTR = 8;

  private final String[] names;
  private final DataType[] types;
  private final int textBody; // index of a text body, or -1
  private final boolean addsType;
  private FieldVector[] vectors;
  private long bytes;

  RowColumns(StructType schema) {
    names = schema.fieldNames().clone();
    types = new DataType[names.length];
    int text = -1;
    boolean hasType = false;
    for (int i = 0; i < names.length; i++) {
      names[i] = names[i].toLowerCase(Locale.ROOT);
      types[i] = schema.fields()[i].dataType();
      hasType |= names[i].equals(BODY_TYPE);
      if (names[i].equals(BODY) && types[i].equals(DataTypes.StringType)) {
        text = i;
      }
    }
    textBody = text;
    addsType = text >= 0 && !hasType;
  }

  /** Returns the columns of the Arrow stream. */
  Schema schema() {
    List<Field> fields = new ArrayList<>();
    for (int i = 0; i < names.length; i++) {
      fields.add(field(names[i], i == textBody ? DataTypes.BinaryType : types[i]));
    }
    if (addsType) {
      fields.add(field(BODY_TYPE, DataTypes.IntegerType));
    }
    return new Schema(fields);
  }

  private static Field field(String name, DataType type) {
    ArrowType arrow;
    if (type.equals(DataTypes.StringType)) {
      arrow = new ArrowType.Utf8();
    } else if (type.equals(DataTypes.BinaryType)) {
      arrow = new ArrowType.Binary();
    } else if (type.equals(DataTypes.BooleanType)) {
      arrow = new ArrowType.Bool();
    } else if (type.equals(DataTypes.IntegerType)) {
      arrow = new ArrowType.Int(32, true);
    } else if (type.equals(DataTypes.LongType)) {
      arrow = new ArrowType.Int(64, true);
    } else {
      throw new IllegalArgumentException("column " + name + " is " + type.simpleString());
    }
    return new Field(name, FieldType.nullable(arrow), null);
  }

  /** Set the vectors to write into. */
  void bind(VectorSchemaRoot root) {
    vectors = root.getFieldVectors().toArray(FieldVector[]::new);
  }

  /** Returns the bytes of texts and bodies since the last {@code reset}. */
  long bytes() {
    return bytes;
  }

  /** Begin a record batch. */
  void reset() {
    bytes = 0;
    for (FieldVector vector : vectors) {
      vector.reset();
    }
  }

  /**
   * Set a row.
   *
   * @return why the row cannot be sent; null if it can.
   */
  String set(int index, InternalRow row) {
    for (int i = 0; i < names.length; i++) {
      FieldVector vector = vectors[i];
      if (row.isNullAt(i)) {
        setNull(vector, index);
      } else if (types[i].equals(DataTypes.StringType)) {
        UTF8String text = row.getUTF8String(i);
        if (!text.isValid()) {
          return names[i] + " is not valid UTF-8";
        }
        put(vector, index, i == textBody ? utf16(text) : text.getBytes());
      } else if (vector instanceof BaseVariableWidthVector) {
        put(vector, index, row.getBinary(i));
      } else if (vector instanceof IntVector numbers) {
        numbers.setSafe(index, row.getInt(i));
      } else if (vector instanceof BigIntVector numbers) {
        numbers.setSafe(index, row.getLong(i));
      } else {
        ((BitVector) vector).setSafe(index, row.getBoolean(i) ? 1 : 0);
      }
    }
    if (addsType) {
      ((IntVector) vectors[names.length]).setSafe(index, VT_BSTR);
    }
    return null;
  }

  private void put(FieldVector vector, int index, byte[] value) {
    ((BaseVariableWidthVector) vector).setSafe(index, value);
    bytes += value.length;
  }

  private static void setNull(FieldVector vector, int index) {
    if (vector instanceof BaseVariableWidthVector texts) {
      texts.setNull(index);
    } else {
      ((BaseFixedWidthVector) vector).setNull(index);
    }
  }

  private static byte[] utf16(UTF8String text) {
    return text.toString().getBytes(StandardCharsets.UTF_16LE);
  }
}
