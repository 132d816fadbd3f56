package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.channels.WritableByteChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;
import jdk.net.ExtendedSocketOptions;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One request for an Arrow stream from or to a queue manager, and its reply; docs/bulk.md describes the protocol. */
final class Connection implements ReadableByteChannel, WritableByteChannel {
  private static final int CONNECT_MILLISECONDS = 20_000;
  private static final int BUFFER = 1 << 16;
  private static final int KEEPALIVE_SECONDS = 60; // these three as in flight/arrow_listener.py
  private static final int PROBE_SECONDS = 15;
  private static final int PROBES = 4;
  private static final long LONGEST_RETRY = 1_000_000_000; // seconds; in nanoseconds, it fits into a long

  private final SocketChannel socket;
  private final ReadableByteChannel source;
  private final WritableByteChannel target;
  private final ByteBuffer buffer = ByteBuffer.allocate(BUFFER).flip();

  /**
   * Credentials and TLS settings from the options of the data source.
   *
   * @param credential a password, {@code env:NAME} or {@code file:PATH}, which the connecting process resolves.
   */
  record Access(String user, String credential, String tlsRoot, long retrySeconds) implements Serializable {
    Access(Map<String, String> options) {
      this(new CaseInsensitiveStringMap(options));
    }

    private Access(CaseInsensitiveStringMap options) {
      this(options.get("user"), options.getOrDefault("credential", ""), options.get("tlsRoot"),
          seconds(options.getOrDefault("retrySeconds", "60")));
    }

    /** Parses retrySeconds like the Python source. Values beyond LONGEST_RETRY are reduced to it. */
    private static long seconds(String text) {
      if (!text.strip().matches("[0-9]+")) {
        throw new IllegalArgumentException(
            "OptionError: retrySeconds is '" + text + "', allowed: a whole number, 0 or more");
      }
      return new BigInteger(text.strip()).min(BigInteger.valueOf(LONGEST_RETRY)).longValue();
    }

    /** Omits the password, because Spark's logs and pages may show the text. */
    @Override
    public String toString() {
      return "user " + user;
    }

    private String password() throws IOException {
      if (credential.startsWith("env:")) {
        String value = System.getenv(credential.substring(4));
        if (value == null) {
          throw new IllegalArgumentException("credential is " + credential + ", but this environment variable is not set");
        }
        return value;
      }
      if (credential.startsWith("file:")) {
        return Files.readString(Path.of(credential.substring(5))).replaceAll("[\r\n]+$", "");
      }
      return credential;
    }
  }

  /**
   * Connect, send a request and wait until it is accepted.
   *
   * @param kind read or write.
   * @param request its arguments, as JSON.
   * @throws MsmqException the queue manager refused the request.
   * @throws IOException the queue manager does not answer; the request may be repeated.
   */
  Connection(String host, int port, Access access, String kind, String request) throws IOException {
    ObjectNode values = Planner.JSON.createObjectNode();
    if (access.user() != null) {
      values.put("user", access.user()).put("password", access.password());
    }
    values.set(kind, Planner.JSON.readTree(request));
    socket = SocketChannel.open();
    try {
      socket.socket().connect(new InetSocketAddress(host, port), CONNECT_MILLISECONDS);
      socket.setOption(StandardSocketOptions.TCP_NODELAY, true);
      socket.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
      socket.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, KEEPALIVE_SECONDS);
      socket.setOption(ExtendedSocketOptions.TCP_KEEPINTERVAL, PROBE_SECONDS);
      socket.setOption(ExtendedSocketOptions.TCP_KEEPCOUNT, PROBES);
      if (access.tlsRoot() == null) {
        source = socket;
        target = socket;
      } else {
        SSLSocket secure = secure(host, port, access.tlsRoot());
        source = new StreamChannel(secure.getInputStream());
        target = Channels.newChannel(secure.getOutputStream());
      }
      write(ByteBuffer.wrap((values + "\n").getBytes(StandardCharsets.UTF_8)));
      line();
    } catch (IOException | RuntimeException error) {
      socket.close();
      throw error;
    }
  }

  private SSLSocket secure(String host, int port, String tlsRoot) throws IOException {
    SSLSocket secure = (SSLSocket) context(tlsRoot).getSocketFactory().createSocket(socket.socket(), host, port, true);
    SSLParameters parameters = secure.getSSLParameters();
    parameters.setEndpointIdentificationAlgorithm("HTTPS"); // the certificate must match the host
    secure.setSSLParameters(parameters);
    secure.startHandshake();
    return secure;
  }

  /** Adapts a stream to a channel, with larger reads than {@code Channels.newChannel}. */
  private static final class StreamChannel implements ReadableByteChannel {
    private final InputStream stream;
    private final byte[] bytes = new byte[BUFFER];

    private StreamChannel(InputStream stream) {
      this.stream = stream;
    }

    @Override
    public int read(ByteBuffer target) throws IOException {
      int count = stream.read(bytes, 0, Math.min(bytes.length, target.remaining()));
      if (count > 0) {
        target.put(bytes, 0, count);
      }
      return count;
    }

    @Override
    public boolean isOpen() {
      return true;
    }

    @Override
    public void close() throws IOException {
      stream.close();
    }
  }

  private static SSLContext context(String tlsRoot) {
    try (InputStream file = Files.newInputStream(Path.of(tlsRoot))) {
      KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
      roots.load(null, null);
      for (Certificate root : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
        roots.setCertificateEntry("root" + roots.size(), root);
      }
      if (roots.size() == 0) {
        throw new CertificateException("the file contains no certificate");
      }
      TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(roots);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, trust.getTrustManagers(), null);
      return context;
    } catch (IOException | GeneralSecurityException error) {
      throw new IllegalArgumentException(
          "OptionError: tlsRoot is " + tlsRoot + ", allowed: a PEM file of certificates; " + error, error);
    }
  }

  /**
   * Read a line of the reply.
   *
   * @throws MsmqException the line is an error.
   */
  JsonNode line() throws IOException {
    ByteArrayOutputStream text = new ByteArrayOutputStream();
    for (byte next = next(); next != '\n'; next = next()) {
      text.write(next);
    }
    JsonNode line = Planner.JSON.readTree(text.toByteArray());
    if (line.has("hresult")) {
      throw MsmqException.of(line);
    }
    return line;
  }

  private byte next() throws IOException {
    if (!buffer.hasRemaining() && fill() < 0) {
      throw new EOFException("the queue manager closed the connection");
    }
    return buffer.get();
  }

  private int fill() throws IOException {
    buffer.clear();
    int count = source.read(buffer);
    buffer.flip();
    return count;
  }

  /** Read into an Arrow buffer; directly if it is large. */
  @Override
  public int read(ByteBuffer target) throws IOException {
    if (!buffer.hasRemaining()) {
      if (target.remaining() >= BUFFER) {
        return source.read(target);
      }
      if (fill() < 0) {
        return -1;
      }
    }
    int count = Math.min(buffer.remaining(), target.remaining());
    target.put(target.position(), buffer, buffer.position(), count);
    target.position(target.position() + count);
    buffer.position(buffer.position() + count);
    return count;
  }

  /**
   * Write all bytes.
   *
   * @throws MsmqException the queue manager refused data written earlier.
   */
  @Override
  public int write(ByteBuffer bytes) throws IOException {
    int count = bytes.remaining();
    // While rows are written, only an error can arrive. TLS has its own records, so with TLS, errors are read at the end.
    if (source == socket && socket.socket().getInputStream().available() > 0) {
      line();
    }
    try {
      while (bytes.hasRemaining()) {
        target.write(bytes);
      }
    } catch (IOException error) {
      reason(error);
      throw error;
    }
    return count;
  }

  /** Throw the error that the queue manager sent before the connection broke, if there is one. */
  private void reason(IOException error) {
    try {
      line();
    } catch (IOException broken) {
      error.addSuppressed(broken);
    }
  }

  @Override
  public boolean isOpen() {
    return socket.isOpen();
  }

  @Override
  public void close() throws IOException {
    socket.close();
  }
}
