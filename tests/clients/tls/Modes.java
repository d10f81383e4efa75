// TLS as Java's JSSE speaks it; what it does stands in modes.py.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.Set;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedKeyManager;

public final class Modes {
  private static final String[] VERSIONS = {"1.2", "1.3"};
  private static String host;
  private static int port;
  private static Path folder;

  public static void main(String[] arguments) throws Exception {
    host = arguments[1];
    port = Integer.parseInt(arguments[2]);
    folder = Path.of(arguments[3]);
    if (arguments[0].equals("modes")) {
      for (String version : VERSIONS) {
        for (String certificate : new String[] {"none", "client", "foreign"}) {
          attempt(version, certificate, "ca", certificate);
        }
        attempt(version, "distrust", "strangers", "client");
      }
      return;
    }
    int count = 0;
    Set<Certificate> seen = new HashSet<>();
    while (!Files.exists(folder.resolve("stop"))) {
      // A context of its own, or sessions would be resumed and no certificate shown.
      if (seen.add(talk(context("ca", "client"), VERSIONS[count % 2], 10))) {
        System.out.println("seen " + seen.size());
      }
      count++;
    }
    System.out.println(count + " connections");
  }

  private static void attempt(String version, String what, String authority, String certificate) throws Exception {
    String outcome = "served";
    try {
      talk(context(authority, certificate), version, 100_000);
    } catch (SocketTimeoutException silent) {
      throw silent;
    } catch (IOException refused) {
      outcome = "refused";
    }
    System.out.println(version + " " + what + " " + outcome);
  }

  /** Stores and reads a value; returns the server's certificate. */
  private static Certificate talk(SSLContext context, String version, int length) throws Exception {
    try (Socket plain = new Socket()) {
      plain.connect(new InetSocketAddress(host, port), 30_000);
      plain.setSoTimeout(30_000);
      try (SSLSocket client = (SSLSocket) context.getSocketFactory().createSocket(plain, host, port, true)) {
        client.setEnabledProtocols(new String[] {"TLSv" + version});
        var parameters = client.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        client.setSSLParameters(parameters);
        byte[] value = "v".repeat(length).getBytes(StandardCharsets.US_ASCII);
        byte[] request = joined("set tls 0 0 " + length + "\r\n", value, "\r\nget tls\r\n");
        client.getOutputStream().write(request);
        byte[] wanted = joined("STORED\r\nVALUE tls 0 " + length + "\r\n", value, "\r\nEND\r\n");
        byte[] got = client.getInputStream().readNBytes(wanted.length);
        if (got.length < wanted.length) {
          throw new SSLException("the server has hung up");
        }
        if (!Arrays.equals(got, wanted)) {
          throw new IllegalStateException("wrong answer");
        }
        return client.getSession().getPeerCertificates()[0];
      }
    }
  }

  private static byte[] joined(String first, byte[] value, String last) throws IOException {
    var all = new ByteArrayOutputStream();
    all.write(first.getBytes(StandardCharsets.US_ASCII));
    all.write(value);
    all.write(last.getBytes(StandardCharsets.US_ASCII));
    return all.toByteArray();
  }

  private static SSLContext context(String authority, String certificate) throws Exception {
    KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
    trusted.load(null);
    trusted.setCertificateEntry("authority", certificate(authority));
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(trusted);
    KeyManager[] keys = {};
    if (!certificate.equals("none")) {
      keys = new KeyManager[] {new Own(certificate(certificate), key(certificate))};
    }
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys, trust.getTrustManagers(), null);
    return context;
  }

  private static X509Certificate certificate(String name) throws Exception {
    byte[] pem = Files.readAllBytes(folder.resolve(name + ".pem"));
    return (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(pem));
  }

  private static PrivateKey key(String name) throws Exception {
    String pem = Files.readString(folder.resolve(name + ".key"));
    String text = pem.replaceAll("-----[^-]*-----", "").replaceAll("\\s", "");
    return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(text)));
  }

  /** Shows its certificate whatever authorities the server names. */
  private static final class Own extends X509ExtendedKeyManager {
    private final X509Certificate certificate;
    private final PrivateKey key;

    Own(X509Certificate certificate, PrivateKey key) {
      this.certificate = certificate;
      this.key = key;
    }

    @Override
    public String chooseClientAlias(String[] types, Principal[] issuers, Socket socket) {
      return "own";
    }

    @Override
    public X509Certificate[] getCertificateChain(String alias) {
      return new X509Certificate[] {certificate};
    }

    @Override
    public PrivateKey getPrivateKey(String alias) {
      return key;
    }

    @Override
    public String[] getClientAliases(String type, Principal[] issuers) {
      return new String[] {"own"};
    }

    @Override
    public String chooseServerAlias(String type, Principal[] issuers, Socket socket) {
      return null;
    }

    @Override
    public String[] getServerAliases(String type, Principal[] issuers) {
      return null;
    }
  }
}
