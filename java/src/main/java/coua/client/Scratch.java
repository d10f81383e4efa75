package coua.client;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ArrayBlockingQueue;

/**
 * Memory outside of the heap for the arguments and results of one call. It is used again: a call allocates nothing
 * there, but for what is larger than usual.
 *
 * <pre>
 *   0        256      296      304       312       400      656
 *   ┌────────┬────────┬────────┬─────────┬─────────┬────────┬──────────┐
 *   │ error  │ value  │ number │ initial │ request │ key    │ bytes    │
 *   └────────┴────────┴────────┴─────────┴─────────┴────────┴──────────┘
 * </pre>
 */
final class Scratch implements AutoCloseable {
  private static final long VALUE = Library.Error.SIZE;
  private static final long NUMBER = VALUE + Library.Value.SIZE;
  private static final long INITIAL = NUMBER + Long.BYTES;
  private static final long REQUEST = INITIAL + Long.BYTES;
  private static final long KEY = REQUEST + Library.Request.SIZE;
  private static final int KEY_LEN_MAX = 256;
  private static final long BYTES = KEY + KEY_LEN_MAX;
  private static final int BYTES_LEN_MAX = 8192;

  /** As many as a client has connections, and some. */
  private static final ArrayBlockingQueue<Scratch> IDLE = new ArrayBlockingQueue<>(64);

  private final MemorySegment all = Arena.ofAuto().allocate(BYTES + BYTES_LEN_MAX, 8);
  final MemorySegment error = all.asSlice(0, Library.Error.SIZE);
  final MemorySegment value = all.asSlice(VALUE, Library.Value.SIZE);
  final MemorySegment number = all.asSlice(NUMBER, Long.BYTES);
  final MemorySegment initial = all.asSlice(INITIAL, Long.BYTES);
  final MemorySegment request = all.asSlice(REQUEST, Library.Request.SIZE);
  private final MemorySegment keyPlace = all.asSlice(KEY, KEY_LEN_MAX);
  private final MemorySegment bytesPlace = all.asSlice(BYTES, BYTES_LEN_MAX);

  /** For what is too large for here; null until it is needed. */
  private Arena large;

  MemorySegment key;
  long keyLen;

  private Scratch() {}

  static Scratch take(String key) {
    Scratch scratch = IDLE.poll();
    if (scratch == null) {
      scratch = new Scratch();
    }
    if (key != null) {
      byte[] bytes = key.getBytes(StandardCharsets.UTF_8);
      scratch.keyLen = bytes.length;
      scratch.key = scratch.put(bytes, scratch.keyPlace);
    }
    return scratch;
  }

  /** The bytes, outside of the heap. */
  MemorySegment put(byte[] bytes) {
    return put(bytes, bytesPlace);
  }

  /** Text with a zero behind it. */
  MemorySegment put(String text) {
    return allocate(text.length() * 4L + 1).copyFrom(MemorySegment.ofArray(zeroEnded(text)));
  }

  private static byte[] zeroEnded(String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return java.util.Arrays.copyOf(bytes, bytes.length + 1);
  }

  MemorySegment allocate(long size) {
    if (large == null) {
      large = Arena.ofConfined();
    }
    return large.allocate(Math.max(size, 1), 8);
  }

  /** The keys as slices, outside of the heap. */
  MemorySegment slices(java.util.Collection<String> keys) {
    MemorySegment slices = allocate(keys.size() * Library.SLICE_SIZE);
    long at = 0;
    for (String key : keys) {
      byte[] bytes = key.getBytes(StandardCharsets.UTF_8);
      MemorySegment own = allocate(bytes.length);
      MemorySegment.copy(bytes, 0, own, java.lang.foreign.ValueLayout.JAVA_BYTE, 0, bytes.length);
      slices.set(java.lang.foreign.ValueLayout.ADDRESS, at, own);
      slices.set(JAVA_LONG, at + Long.BYTES, bytes.length);
      at += Library.SLICE_SIZE;
    }
    return slices;
  }

  private MemorySegment put(byte[] bytes, MemorySegment usual) {
    MemorySegment place = bytes.length <= usual.byteSize() ? usual : allocate(bytes.length);
    MemorySegment.copy(bytes, 0, place, java.lang.foreign.ValueLayout.JAVA_BYTE, 0, bytes.length);
    return place;
  }

  MemorySegment initially(long number) {
    initial.set(JAVA_LONG, 0, number);
    return initial;
  }

  @Override
  public void close() {
    if (large != null) {
      large.close();
      large = null;
    }
    IDLE.offer(this);
  }
}
