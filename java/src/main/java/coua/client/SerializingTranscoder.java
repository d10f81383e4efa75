package coua.client;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputFilter;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Date;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;

/**
 * Reads and writes what spymemcached's transcoder of the same name writes and reads: strings, numbers, dates,
 * booleans and byte arrays in forms of their own, other objects serialized, and what is long in gzip.
 *
 * <p>Whoever can write to the cache chooses which classes are deserialized. So only classes of the module {@code
 * java.base} are, unless another filter is given.
 */
public final class SerializingTranscoder implements Transcoder<Object> {
  private static final int SERIALIZED = 1;
  private static final int COMPRESSED = 2;
  private static final int TYPE = 0xff00;
  private static final int BOOLEAN = 1 << 8;
  private static final int INT = 2 << 8;
  private static final int LONG = 3 << 8;
  private static final int DATE = 4 << 8;
  private static final int BYTE = 5 << 8;
  private static final int FLOAT = 6 << 8;
  private static final int DOUBLE = 7 << 8;
  private static final int BYTES = 8 << 8;

  /** spymemcached's: longer values are compressed. */
  private static final int COMPRESSION_THRESHOLD = 16_384;

  /** The most bytes that a compressed value may have when it is unpacked. */
  private static final int UNPACKED_MAX = 64 << 20;

  private static final ObjectInputFilter BASE =
      ObjectInputFilter.Config.createFilter("maxdepth=100;maxarray=16777216;java.base/*;!*");

  private final ObjectInputFilter filter;
  private final int compressionThreshold;

  /** One that deserializes classes of {@code java.base} only. */
  public SerializingTranscoder() {
    this(BASE, COMPRESSION_THRESHOLD);
  }

  /**
   * One with a filter and a threshold of its own.
   *
   * @param filter which classes may be deserialized
   * @param compressionThreshold values with more bytes are compressed
   */
  public SerializingTranscoder(ObjectInputFilter filter, int compressionThreshold) {
    this.filter = filter;
    this.compressionThreshold = compressionThreshold;
  }

  @Override
  public CachedData encode(Object object) {
    int flags;
    byte[] bytes;
    switch (object) {
      case null -> throw new NullPointerException("null cannot be stored");
      case String text -> {
        flags = 0;
        bytes = text.getBytes(StandardCharsets.UTF_8);
      }
      case Long number -> {
        flags = LONG;
        bytes = packed(number, 8);
      }
      case Integer number -> {
        flags = INT;
        bytes = packed(number, 4);
      }
      case Boolean is -> {
        flags = BOOLEAN;
        bytes = new byte[] {(byte) (is ? '1' : '0')};
      }
      case Date date -> {
        flags = DATE;
        bytes = packed(date.getTime(), 8);
      }
      case Byte number -> {
        flags = BYTE;
        bytes = new byte[] {number};
      }
      case Float number -> {
        flags = FLOAT;
        bytes = packed(Float.floatToRawIntBits(number), 4);
      }
      case Double number -> {
        flags = DOUBLE;
        bytes = packed(Double.doubleToRawLongBits(number), 8);
      }
      case byte[] array -> {
        flags = BYTES;
        bytes = array;
      }
      default -> {
        flags = SERIALIZED;
        bytes = serialized(object);
      }
    }
    if (bytes.length > compressionThreshold) {
      byte[] compressed = compressed(bytes);
      if (compressed.length < bytes.length) {
        return new CachedData(flags | COMPRESSED, compressed);
      }
    }
    return new CachedData(flags, bytes);
  }

  @Override
  public Object decode(CachedData data) {
    try {
      byte[] bytes = data.bytes();
      if ((data.flags() & COMPRESSED) != 0) {
        bytes = unpacked(bytes);
      }
      if ((data.flags() & SERIALIZED) != 0) {
        return deserialized(bytes);
      }
      return switch (data.flags() & TYPE) {
        case 0 -> new String(bytes, StandardCharsets.UTF_8);
        case BOOLEAN -> single(bytes) == '1';
        case INT -> (int) number(bytes, 4);
        case LONG -> number(bytes, 8);
        case DATE -> new Date(number(bytes, 8));
        // spymemcached packs nothing here, but reads an empty one as 0.
        case BYTE -> bytes.length == 0 ? (byte) 0 : single(bytes);
        case FLOAT -> Float.intBitsToFloat((int) number(bytes, 4));
        case DOUBLE -> Double.longBitsToDouble(number(bytes, 8));
        case BYTES -> bytes;
        default -> throw new IOException("no type has the flags " + data.flags());
      };
    } catch (IOException | ClassNotFoundException | RuntimeException cause) {
      String message = "a value with the flags " + data.flags() + " cannot be read: " + cause.getMessage();
      throw new CouaException(CouaException.Kind.UNREADABLE, message, cause);
    }
  }

  private static byte single(byte[] bytes) throws IOException {
    if (bytes.length != 1) {
      throw new IOException("it has " + bytes.length + " bytes instead of one");
    }
    return bytes[0];
  }

  /** Big-endian, without zeros in front: zero has no bytes. */
  private static byte[] packed(long number, int size) {
    long bits = size == 4 ? number & 0xffff_ffffL : number;
    int len = (64 - Long.numberOfLeadingZeros(bits) + 7) / 8;
    byte[] bytes = new byte[len];
    for (int at = len - 1; at >= 0; at--) {
      bytes[at] = (byte) bits;
      bits >>>= 8;
    }
    return bytes;
  }

  private static long number(byte[] bytes, int size) throws IOException {
    if (bytes.length > size) {
      throw new IOException("a number has " + bytes.length + " bytes, and " + size + " are the most");
    }
    long number = 0;
    for (byte digit : bytes) {
      number = number << 8 | digit & 0xff;
    }
    return number;
  }

  private static byte[] serialized(Object object) {
    var bytes = new ByteArrayOutputStream();
    try (var stream = new ObjectOutputStream(bytes)) {
      stream.writeObject(object);
    } catch (IOException cause) {
      throw new IllegalArgumentException(object.getClass() + " cannot be serialized", cause);
    }
    return bytes.toByteArray();
  }

  private Object deserialized(byte[] bytes) throws IOException, ClassNotFoundException {
    try (var stream = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
      stream.setObjectInputFilter(filter);
      return stream.readObject();
    }
  }

  private static byte[] compressed(byte[] bytes) {
    var packed = new ByteArrayOutputStream(bytes.length / 2);
    try (var stream = new GZIPOutputStream(packed)) {
      stream.write(bytes);
    } catch (IOException cause) {
      throw new IllegalStateException("memory does not fail to be written", cause);
    }
    return packed.toByteArray();
  }

  private static byte[] unpacked(byte[] bytes) throws IOException {
    try (var stream = new GZIPInputStream(new ByteArrayInputStream(bytes))) {
      byte[] unpacked = stream.readNBytes(UNPACKED_MAX);
      if (unpacked.length == UNPACKED_MAX && stream.read() >= 0) {
        throw new IOException("it unpacks to more than " + UNPACKED_MAX + " bytes");
      }
      return unpacked;
    }
  }
}
