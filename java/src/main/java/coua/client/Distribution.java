package coua.client;

/** How keys are spread over servers. Clients that share a cache must agree on it. */
public enum Distribution {
  /** libmemcached's ring, with {@code MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED}. */
  KETAMA("ketama"),
  /** spymemcached's {@code KetamaNodeLocator} with the key format {@code LIBMEMCACHED}. */
  KETAMA_SPYMEMCACHED("ketama_spymemcached"),
  /** A hash modulo the number of servers: libmemcached's default. */
  MODULA("modula");

  final String option;

  Distribution(String option) {
    this.option = option;
  }
}
