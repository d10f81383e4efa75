package coua.client;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * A value that is read where it was received. Only the thread that got it may read it, until it is closed; afterwards
 * {@link #bytes} throws {@link IllegalStateException}.
 */
public final class Lease implements AutoCloseable {
  private final Arena arena;
  private final MemorySegment own;
  private final MemorySegment bytes;
  private final int flags;
  private final long cas;

  /** Takes over what {@code value} lends; nobody else gives it back. */
  Lease(MemorySegment value) {
    arena = Arena.ofConfined();
    own = arena.allocate(Library.Value.SIZE, 8).copyFrom(value);
    flags = Library.Value.flags(value);
    cas = Library.Value.cas(value);
    MemorySegment lent = Library.Value.bytes(value);
    bytes = lent.reinterpret(arena, null).asReadOnly();
  }

  /** The value, read-only. */
  public MemorySegment bytes() {
    return bytes;
  }

  /** What was stored beside the value. */
  public int flags() {
    return flags;
  }

  /** The value's CAS. */
  public long cas() {
    return cas;
  }

  /** Gives the value back. A second call does nothing. */
  @Override
  public void close() {
    if (arena.scope().isAlive()) {
      CouaClient.release(own, 1);
      arena.close();
    }
  }
}
