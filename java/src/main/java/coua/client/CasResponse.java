package coua.client;

/** What became of a {@code cas}. */
public enum CasResponse {
  /** The value is stored. */
  OK,
  /** There is no item to compare with. */
  NOT_FOUND,
  /** The item has changed. */
  EXISTS;

  static CasResponse of(int status) {
    return switch (status) {
      case Library.OK -> OK;
      case Library.EXISTS -> EXISTS;
      default -> NOT_FOUND;
    };
  }
}
