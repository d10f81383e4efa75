package coua.client;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** One function that C calls for all observers: the context that it is called with is an observer's number. */
final class Observers {
  private static final int CONNECTED = 0;
  private static final int LOST = 1;
  private static final int EJECTED = 2;
  private static final int RETURNED = 3;

  private static final ConcurrentHashMap<Long, ConnectionObserver> ALL = new ConcurrentHashMap<>();
  private static final AtomicLong LAST = new AtomicLong();

  private Observers() {}

  /** What C calls; made when somebody wants to observe. */
  private static final class Stub {
    static final MemorySegment ADDRESS_OF_TOLD;

    static {
      try {
        var type = MethodType.methodType(void.class, MemorySegment.class, MemorySegment.class, int.class);
        var told = MethodHandles.lookup().findStatic(Observers.class, "told", type);
        ADDRESS_OF_TOLD = Library.callable(told, FunctionDescriptor.ofVoid(ADDRESS, ADDRESS, JAVA_INT));
      } catch (ReflectiveOperationException impossible) {
        throw new ExceptionInInitializerError(impossible);
      }
    }
  }

  /** The number of a new observer; 0 for none. */
  static long add(ConnectionObserver observer) {
    if (observer == null) {
      return 0;
    }
    long number = LAST.incrementAndGet();
    ALL.put(number, observer);
    return number;
  }

  static void remove(long number) {
    ALL.remove(number);
  }

  /** The function for C, or NULL where there is no observer. */
  static MemorySegment function(long number) {
    return number == 0 ? MemorySegment.NULL : Stub.ADDRESS_OF_TOLD;
  }

  static MemorySegment context(long number) {
    return MemorySegment.ofAddress(number);
  }

  /** C calls it. Nothing may be thrown back to C: that would end the process. */
  private static void told(MemorySegment context, MemorySegment server, int event) {
    try {
      ConnectionObserver observer = ALL.get(context.address());
      if (observer == null) {
        return;
      }
      String name = server.reinterpret(Long.MAX_VALUE).getString(0);
      switch (event) {
        case CONNECTED -> observer.connectionEstablished(name);
        case LOST -> observer.connectionLost(name);
        case EJECTED -> observer.serverEjected(name);
        case RETURNED -> observer.serverReturned(name);
        default -> {}
      }
    } catch (Throwable lost) {
      // It has nowhere to go.
    }
  }
}
