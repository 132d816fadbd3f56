package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;

/** An error that the queue manager reports. */
final class MsmqException extends RuntimeException {
  private static final long QUEUE_NOT_FOUND = 0xC00E0003L;
  private static final long QUEUE_DELETED = 0xC00E005AL;

  private final long hresult;

  private MsmqException(long hresult, String detail) {
    super(String.format("%s (HRESULT 0x%08X)", detail, hresult));
    this.hresult = hresult;
  }

  /**
   * Create the exception for an error reply.
   *
   * @throws IOException the queue manager is busy with other requests; the request may be repeated.
   */
  static MsmqException of(JsonNode reply) throws IOException {
    MsmqException error = new MsmqException(reply.get("hresult").asLong() & 0xFFFFFFFFL, reply.get("detail").asText());
    if (reply.path("retry").asBoolean()) {
      throw new IOException(error.getMessage(), error);
    }
    return error;
  }

  private MsmqException(MsmqException error, String where) {
    super(where + ": " + error.getMessage(), error);
    hresult = error.hresult;
  }

  /** Returns the same error with its location in the text. */
  MsmqException in(String where) {
    return new MsmqException(this, where);
  }

  boolean isMissingQueue() {
    return hresult == QUEUE_NOT_FOUND || hresult == QUEUE_DELETED;
  }
}
