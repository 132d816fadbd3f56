package openmsmq.spark;

import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Keeps the stages of a sink from expiring while the driver runs a write, even if rows arrive slowly. */
final class KeepAlive implements AutoCloseable {
  private static final Logger LOGGER = LoggerFactory.getLogger(KeepAlive.class);
  private static final long SECONDS = 60; // the queue manager drops stages after its stage_time_limit

  private final String sink;
  private final Map<String, String> options;
  private ScheduledExecutorService timer;

  KeepAlive(String sink, Map<String, String> options) {
    this.sink = sink;
    this.options = options;
  }

  /** Start, unless already started. */
  synchronized void start() {
    if (timer == null) {
      timer = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "keep-alive of msmq sink " + sink);
        thread.setDaemon(true);
        return thread;
      });
      timer.scheduleWithFixedDelay(this::renew, SECONDS, SECONDS, TimeUnit.SECONDS);
    }
  }

  private void renew() {
    try {
      Planner.ask("renew", a -> a.put("sink", sink).putPOJO("options", options));
    } catch (RuntimeException error) { // the next one may succeed
      LOGGER.warn("sink {}: a keep-alive failed; without any for stage_time_limit, the queue manager drops the "
          + "rows staged by the tasks: {}", sink, error.getMessage());
    }
  }

  @Override
  public synchronized void close() {
    if (timer != null) {
      timer.shutdownNow();
      timer = null;
    }
  }
}
