package openmsmq.spark;

import java.io.IOException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Limits retries while a queue manager does not answer: the option {@code retrySeconds}. */
final class Retry {
  private static final Logger LOGGER = LoggerFactory.getLogger(Retry.class);
  private static final long FIRST_PAUSE = 100; // milliseconds; each pause is twice the last
  private static final long LONGEST_PAUSE = 5_000;

  private final long seconds;
  private final String location;
  private long end; // of System.nanoTime; 0 while the queue manager answers
  private long pause = FIRST_PAUSE;

  Retry(long seconds, String location) {
    this.seconds = seconds;
    this.location = location;
  }

  /** Record a successful request. */
  void answered() {
    end = 0;
    pause = FIRST_PAUSE;
  }

  /**
   * Wait until the next attempt.
   *
   * @throws IOException the time is used up.
   */
  void pause(IOException error) throws IOException {
    long now = System.nanoTime();
    if (end == 0) {
      end = now + seconds * 1_000_000_000L;
      if (seconds > 0) {
        LOGGER.warn("{}: {}; trying again for {} s (option retrySeconds)", location, error.toString(), seconds);
      }
    }
    long left = (end - now) / 1_000_000;
    if (left <= 0) {
      throw new IOException(
          location + ": " + error.getMessage() + "; tried again for " + seconds + " s (option retrySeconds)", error);
    }
    try {
      Thread.sleep(Math.min(pause, left));
    } catch (InterruptedException interruption) {
      Thread.currentThread().interrupt();
      throw new IOException("interrupted", interruption);
    }
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  }
}
