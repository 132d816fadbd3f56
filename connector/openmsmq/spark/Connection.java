package openmsmq.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One request for an Arrow stream of a queue manager, and its answer; docs/bulk.md describes the protocol. */
final class Connection implements Closeable {
  private static final int CONNECT_MILLISECONDS = 20_000;
  private static final int BUFFER = 1 << 16;

  private final Socket socket;
  final InputStream input;
  final OutputStream output;

  /**
   * Who connects, by the options of the data source.
   *
   * @param credential a password, {@code env:NAME} or {@code file:PATH}; it is read where it is used.
   */
  record Access(String user, String credential, String tlsRoot, long retrySeconds) implements Serializable {
    Access(Map<String, String> options) {
      this(new CaseInsensitiveStringMap(options));
    }

    private Access(CaseInsensitiveStringMap options) {
      this(options.get("user"), options.getOrDefault("credential", ""), options.get("tlsRoot"),
          options.getLong("retrySeconds", 60));
    }

    private String password() throws IOException {
      if (credential.startsWith("env:")) {
        String value = System.getenv(credential.substring(4));
        if (value == null) {
          throw new IllegalArgumentException("credential is " + credential + ", and there is no such variable here");
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
   * @throws MsmqException the queue manager has refused.
   * @throws IOException nobody answers; it may be tried again.
   */
  Connection(String host, int port, Access access, String kind, String request) throws IOException {
    ObjectNode values = Planner.JSON.createObjectNode();
    if (access.user() != null) {
      values.put("user", access.user()).put("password", access.password());
    }
    values.set(kind, Planner.JSON.readTree(request));
    socket = open(host, port, access.tlsRoot());
    try {
      socket.setTcpNoDelay(true);
      socket.setKeepAlive(true);
      input = new BufferedInputStream(socket.getInputStream(), BUFFER);
      output = new BufferedOutputStream(socket.getOutputStream(), BUFFER);
      output.write((values + "\n").getBytes(StandardCharsets.UTF_8));
      output.flush();
      line();
    } catch (IOException | RuntimeException error) {
      socket.close();
      throw error;
    }
  }

  private static Socket open(String host, int port, String tlsRoot) throws IOException {
    Socket plain = new Socket();
    try {
      plain.connect(new InetSocketAddress(host, port), CONNECT_MILLISECONDS);
      if (tlsRoot == null) {
        return plain;
      }
      SSLSocket secure = (SSLSocket) context(tlsRoot).getSocketFactory().createSocket(plain, host, port, true);
      SSLParameters parameters = secure.getSSLParameters();
      parameters.setEndpointIdentificationAlgorithm("HTTPS"); // the certificate has to be that of the host
      secure.setSSLParameters(parameters);
      secure.startHandshake();
      return secure;
    } catch (IOException | RuntimeException error) {
      plain.close();
      throw error;
    }
  }

  private static SSLContext context(String tlsRoot) throws IOException {
    try (InputStream file = Files.newInputStream(Path.of(tlsRoot))) {
      KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
      roots.load(null, null);
      for (Certificate root : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
        roots.setCertificateEntry("root" + roots.size(), root);
      }
      TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(roots);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, trust.getTrustManagers(), null);
      return context;
    } catch (GeneralSecurityException error) {
      throw new IllegalArgumentException("tlsRoot is " + tlsRoot + ", allowed: a PEM file of certificates", error);
    }
  }

  /**
   * A line of the answer.
   *
   * @throws MsmqException the line is an error.
   */
  JsonNode line() throws IOException {
    ByteArrayOutputStream text = new ByteArrayOutputStream();
    for (int next = input.read(); next != '\n'; next = input.read()) {
      if (next < 0) {
        throw new EOFException("the queue manager closed the connection");
      }
      text.write(next);
    }
    JsonNode line = Planner.JSON.readTree(text.toByteArray());
    if (line.has("hresult")) {
      throw MsmqException.of(line.get("hresult").asLong(), line.get("detail").asText());
    }
    return line;
  }

  @Override
  public void close() throws IOException {
    socket.close();
  }
}
