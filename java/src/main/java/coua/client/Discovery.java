package coua.client;

/** Who knows which servers there are, where that is not written down. */
public enum Discovery {
  /** The servers that are given are asked for the list ({@code config get cluster}), as AWS ElastiCache and coua answer it. */
  CLUSTER("cluster"),
  /** Each address of the names that are given is a server. */
  NAMES("names");

  final String option;

  Discovery(String option) {
    this.option = option;
  }
}
