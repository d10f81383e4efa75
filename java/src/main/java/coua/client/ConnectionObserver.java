package coua.client;

/**
 * Is told what becomes of servers and of connections to them, by the address as it was given. It is called in the middle
 * of operations, by many threads at once: it should be quick, and must not use the client. What it throws is lost.
 */
public interface ConnectionObserver {
  /** A connection is open, and the server has answered on it. */
  default void connectionEstablished(String server) {}

  /** A connection that was open has failed, or the server has closed it. */
  default void connectionLost(String server) {}

  /** The server has failed several times in a row and is left alone for a while. */
  default void serverEjected(String server) {}

  /** A server that was ejected has answered. */
  default void serverReturned(String server) {}
}
