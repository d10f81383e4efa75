package coua.client;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** libcouaclient: its functions, and the structures of couaclient.h. */
final class Library {
  static final int OK = 0;
  static final int MISSING = 1;
  static final int EXISTS = 3;

  /** {@code coua_error}. */
  static final class Error {
    static final long SIZE = 256;
    private static final long CAUSE = 4;
    private static final long MESSAGE = 8;
    private static final int MESSAGE_LEN = 248;

    private Error() {}

    static CouaException of(int status, MemorySegment error) {
      byte[] bytes = error.asSlice(MESSAGE, MESSAGE_LEN).toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
      int len = 0;
      while (len < bytes.length && bytes[len] != 0) {
        len++;
      }
      String message = new String(bytes, 0, len, StandardCharsets.UTF_8);
      return new CouaException(status, error.get(JAVA_INT, CAUSE), message);
    }
  }

  /** {@code coua_value}. */
  static final class Value {
    static final long SIZE = 40;
    private static final long BYTES = 0;
    private static final long LEN = 8;
    private static final long CAS = 16;
    private static final long FLAGS = 24;
    private static final long STATUS = 28;

    private Value() {}

    /** The bytes, which are lent until they are given back. */
    static MemorySegment bytes(MemorySegment value) {
      return value.get(ADDRESS, BYTES).reinterpret(value.get(JAVA_LONG, LEN));
    }

    static long cas(MemorySegment value) {
      return value.get(JAVA_LONG, CAS);
    }

    static int flags(MemorySegment value) {
      return value.get(JAVA_INT, FLAGS);
    }

    static int status(MemorySegment value) {
      return value.get(JAVA_INT, STATUS);
    }
  }

  /** {@code coua_slice}. */
  static final long SLICE_SIZE = 16;

  /** {@code coua_request}. */
  static final class Request {
    static final long SIZE = 88;
    static final long TOKEN = 0;
    static final long OPERATION = 8;
    static final long FLAGS = 12;
    static final long KEY = 16;
    static final long KEY_LEN = 24;
    static final long VALUE = 32;
    static final long VALUE_LEN = 40;
    static final long KEYS = 48;
    static final long KEY_COUNT = 56;
    static final long EXPIRY = 64;
    static final long NUMBER = 72;
    static final long INITIAL = 80;

    private Request() {}
  }

  /** {@code coua_completion}. */
  static final class Completion {
    static final long SIZE = 80;
    static final long TOKEN = 0;
    static final long STATUS = 8;
    static final long CAUSE = 12;
    static final long NUMBER = 16;
    static final long VALUE = 24;
    static final long VALUES = 64;
    static final long COUNT = 72;

    private Completion() {}
  }

  private static final long ABI_VERSION = 1;

  private static final Linker LINKER = Linker.nativeLinker();
  private static final SymbolLookup SYMBOLS = load();

  // Key, its length, and what follows.
  static final MethodHandle OPEN =
      function("coua_open_observed", ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
  static final MethodHandle CLOSE =
      LINKER.downcallHandle(symbol("coua_close"), FunctionDescriptor.ofVoid(ADDRESS));
  static final MethodHandle GET = function("coua_get", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
  static final MethodHandle GET_AND_TOUCH =
      function("coua_get_and_touch", ADDRESS, ADDRESS, JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS);
  static final MethodHandle GET_MANY = function("coua_get_many", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
  static final MethodHandle RELEASE =
      LINKER.downcallHandle(
          symbol("coua_value_release"),
          FunctionDescriptor.ofVoid(ADDRESS, JAVA_LONG),
          Linker.Option.critical(false));
  static final MethodHandle STORE =
      function(
          "coua_store", ADDRESS, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG,
          ADDRESS);
  static final MethodHandle DELETE = function("coua_delete", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS);
  static final MethodHandle TOUCH = function("coua_touch", ADDRESS, ADDRESS, JAVA_LONG, JAVA_LONG, ADDRESS);
  static final MethodHandle INCREMENT = counting("coua_increment");
  static final MethodHandle DECREMENT = counting("coua_decrement");
  static final MethodHandle FLUSH_ALL = function("coua_flush_all", ADDRESS, JAVA_INT, ADDRESS);
  static final MethodHandle ASK_SERVERS = function("coua_ask_servers", ADDRESS, ADDRESS, ADDRESS, ADDRESS);

  static final MethodHandle QUEUE_OPEN =
      function("coua_queue_open", ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
  static final MethodHandle QUEUE_CLOSE =
      LINKER.downcallHandle(symbol("coua_queue_close"), FunctionDescriptor.ofVoid(ADDRESS));
  static final MethodHandle QUEUE_SUBMIT = function("coua_queue_submit", ADDRESS, ADDRESS, ADDRESS);
  static final MethodHandle QUEUE_WAIT =
      function("coua_queue_wait", ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, ADDRESS);
  static final MethodHandle QUEUE_WAKE =
      LINKER.downcallHandle(symbol("coua_queue_wake"), FunctionDescriptor.ofVoid(ADDRESS));
  static final MethodHandle COMPLETIONS_RELEASE =
      LINKER.downcallHandle(
          symbol("coua_completions_release"), FunctionDescriptor.ofVoid(ADDRESS, JAVA_LONG));

  /** A function of Java's that C calls, for good. */
  static MemorySegment callable(MethodHandle function, FunctionDescriptor descriptor) {
    return LINKER.upcallStub(function, descriptor, Arena.global());
  }

  private Library() {}

  private static MethodHandle counting(String name) {
    return function(name, ADDRESS, ADDRESS, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
  }

  private static MethodHandle function(String name, MemoryLayout... arguments) {
    return LINKER.downcallHandle(symbol(name), FunctionDescriptor.of(JAVA_INT, arguments));
  }

  private static MemorySegment symbol(String name) {
    return SYMBOLS.find(name).orElseThrow(() -> new UnsatisfiedLinkError("libcouaclient has no " + name));
  }

  /** The library that {@code -Dcoua.library=FILE} names, else the jar's. */
  private static SymbolLookup load() {
    String named = System.getProperty("coua.library");
    SymbolLookup symbols =
        named != null ? SymbolLookup.libraryLookup(Path.of(named), Arena.global()) : unpacked();
    MethodHandle version =
        LINKER.downcallHandle(
            symbols.find("coua_abi_version").orElseThrow(() -> new UnsatisfiedLinkError("it is another library")),
            FunctionDescriptor.of(JAVA_INT));
    int found;
    try {
      found = (int) version.invokeExact();
    } catch (Throwable cause) {
      throw new LinkageError("libcouaclient cannot be called", cause);
    }
    if (found != ABI_VERSION) {
      throw new UnsatisfiedLinkError("libcouaclient has version " + found + ", and " + ABI_VERSION + " is needed");
    }
    return symbols;
  }

  private static SymbolLookup unpacked() {
    String platform = System.getProperty("os.name") + "-" + System.getProperty("os.arch");
    String resource = platform + "/libcouaclient.so";
    try (InputStream packed = Library.class.getResourceAsStream(resource)) {
      if (packed == null) {
        throw new UnsatisfiedLinkError(
            "the jar has no libcouaclient for " + platform + ": name one with -Dcoua.library=FILE");
      }
      // Nobody else may put another file there between the two steps: the folder is ours alone.
      Path folder = Files.createTempDirectory("coua-client");
      Path file = folder.resolve("libcouaclient.so");
      try {
        Files.copy(packed, file, StandardCopyOption.REPLACE_EXISTING);
        return SymbolLookup.libraryLookup(file, Arena.global());
      } finally {
        // The loader has it open.
        Files.deleteIfExists(file);
        Files.deleteIfExists(folder);
      }
    } catch (IOException cause) {
      throw new LinkageError("libcouaclient cannot be unpacked", cause);
    }
  }

  /** What a function may throw that C does not: nothing, but for a client that is closed. */
  static RuntimeException failed(Throwable cause) {
    return switch (cause) {
      case RuntimeException unchecked -> unchecked;
      case java.lang.Error error -> throw error;
      default -> new IllegalStateException(cause);
    };
  }
}
