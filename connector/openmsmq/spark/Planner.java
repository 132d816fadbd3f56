package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.SparkSession;

/**
 * A Python child process of the driver that decides what is read and written ({@code openmsmq.spark.planner}). Options,
 * offsets and errors are those of the Python source, because the process runs its code.
 */
final class Planner implements AutoCloseable {
  static final ObjectMapper JSON = new ObjectMapper();

  /** The interpreter; {@code openmsmq.spark.configure} sets it. */
  private static final String SETTING = "spark.openmsmq.python";

  private static final int MOST_IDLE = 2;
  private static final ConcurrentLinkedDeque<Planner> IDLE = new ConcurrentLinkedDeque<>();

  private final Process process;
  private final BufferedWriter requests;
  private final BufferedReader answers;

  private Planner() {
    String python = SparkSession.active().sparkContext().getConf().get(SETTING, "python3");
    try {
      process = new ProcessBuilder(python, "-P", "-m", "openmsmq.spark.planner")
          .redirectError(ProcessBuilder.Redirect.INHERIT).start();
    } catch (IOException error) {
      throw new UncheckedIOException(
          SETTING + " is " + python + ", allowed: a Python interpreter that has openmsmq[spark]", error);
    }
    requests = process.outputWriter(StandardCharsets.UTF_8);
    answers = process.inputReader(StandardCharsets.UTF_8);
  }

  /** Returns a planner for exclusive use until it is closed. */
  static Planner take() {
    Planner idle = IDLE.pollFirst();
    while (idle != null && !idle.process.isAlive()) {
      idle = IDLE.pollFirst();
    }
    return idle == null ? new Planner() : idle;
  }

  /** Execute one request with any planner. */
  static JsonNode ask(String call, UnaryOperator<ObjectNode> arguments) {
    try (Planner planner = take()) {
      return planner.call(call, arguments);
    }
  }

  /**
   * Send a request and wait for the reply.
   *
   * @param arguments adds the arguments of the call.
   * @throws IllegalArgumentException the planner refused; the message is that of the Python source.
   */
  synchronized JsonNode call(String call, UnaryOperator<ObjectNode> arguments) {
    try {
      requests.write(JSON.writeValueAsString(arguments.apply(JSON.createObjectNode().put("call", call))));
      requests.write('\n');
      requests.flush();
      String line = answers.readLine();
      if (line == null) {
        throw new IOException("planner process ended with exit code " + process.waitFor());
      }
      JsonNode answer = JSON.readTree(line);
      if (answer.has("error")) {
        throw new IllegalArgumentException(answer.get("error").asText()); // PySpark shows only its message
      }
      return answer.get("result");
    } catch (IOException error) {
      process.destroy();
      throw new UncheckedIOException("format msmq: planner: " + error.getMessage(), error);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException(error);
    }
  }

  /** Return the planner to the pool. */
  @Override
  public void close() {
    if (process.isAlive() && IDLE.size() < MOST_IDLE) {
      IDLE.addFirst(this);
    } else {
      end();
    }
  }

  /** End the process, and with it a waiting call. */
  void end() {
    process.destroy();
  }
}
