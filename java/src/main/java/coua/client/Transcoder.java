package coua.client;

/**
 * Makes bytes and client flags of objects, and objects of them. Many threads use one at once.
 *
 * @param <T> the objects
 */
public interface Transcoder<T> {
  /** What is stored for an object. */
  CachedData encode(T object);

  /**
   * The object of what was stored.
   *
   * @throws CouaException of the kind {@code UNREADABLE} when it is none
   */
  T decode(CachedData data);

  /** Bytes as they are, with client flags of 0, and without a look at those that come. */
  Transcoder<byte[]> RAW = new Transcoder<>() {
    @Override
    public CachedData encode(byte[] bytes) {
      return new CachedData(0, bytes);
    }

    @Override
    public byte[] decode(CachedData data) {
      return data.bytes();
    }
  };
}
