package coua.client;

/** What happens to the keys of a server that fails. */
public enum FailureMode {
  /** They go to other servers meanwhile: spymemcached's {@code Redistribute}. */
  REDISTRIBUTE("redistribute"),
  /** They fail at once: spymemcached's {@code Cancel}. */
  FAIL_FAST("fail_fast");

  final String option;

  FailureMode(String option) {
    this.option = option;
  }
}
