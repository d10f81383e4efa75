package coua.client;

/**
 * A value as the server keeps it.
 *
 * @param flags the client flags, which say how the bytes are to be read
 * @param bytes the bytes; they are not copied
 */
public record CachedData(int flags, byte[] bytes) {}
