package coua.client;

/**
 * A value and the CAS that {@link CouaClient#cas} compares.
 *
 * @param value the value
 * @param cas its CAS
 * @param <T> what the transcoder makes of it
 */
public record CasValue<T>(T value, long cas) {}
