package coua.client;

/** Why an operation has no result. A miss is a result. */
public final class CouaException extends RuntimeException {
  /** What matters to a caller: whether the server may have executed the request. */
  public enum Kind {
    /** The request cannot be sent: a key or a setting is wrong. Nothing was done. */
    INVALID(-1),
    /** The server has not got all of it. Nothing was done. */
    NOT_SENT(-2),
    /** No answer to a request that only reads: ask again. */
    INTERRUPTED(-3),
    /** Sent, and whether it was done is not known. */
    OUTCOME_UNKNOWN(-4),
    /** The server answered an error. Nothing was done. */
    REFUSED(-5),
    /** A value came that the transcoder cannot read. */
    UNREADABLE(0);

    private final int status;

    Kind(int status) {
      this.status = status;
    }

    static Kind of(int status) {
      for (Kind kind : values()) {
        if (kind.status == status && status < 0) {
          return kind;
        }
      }
      // One that this version does not know promises nothing.
      return OUTCOME_UNKNOWN;
    }
  }

  private static final int TIMEOUT = 4;

  private final Kind kind;
  private final boolean isTimeout;

  CouaException(Kind kind, String message) {
    super(message);
    this.kind = kind;
    this.isTimeout = false;
  }

  CouaException(Kind kind, String message, Throwable cause) {
    super(message, cause);
    this.kind = kind;
    this.isTimeout = false;
  }

  CouaException(int status, int cause, String message) {
    super(message);
    this.kind = Kind.of(status);
    this.isTimeout = cause == TIMEOUT;
  }

  /** What is known of the request. */
  public Kind kind() {
    return kind;
  }

  /** Whether time ran out. */
  public boolean isTimeout() {
    return isTimeout;
  }
}
