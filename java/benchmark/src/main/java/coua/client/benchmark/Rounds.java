package coua.client.benchmark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

/** The clients in turns, round for round, and the medians of each figure as a table: {@code HOST:PORT ROUNDS}. */
public final class Rounds {
  private static final List<String> CLIENTS = List.of("coua", "spymemcached", "xmemcached");
  private static final List<String> OPERATIONS = List.of("get", "set", "getBulk100", "get100Ahead");
  private static final List<Integer> THREADS = List.of(1, 8);

  /** A figure of each round, by operation, threads and client. */
  private static final Map<String, Map<String, List<Double>>> FIGURES = new TreeMap<>();

  private Rounds() {}

  public static void main(String[] arguments) throws Exception {
    String server = arguments[0];
    int rounds = Integer.parseInt(arguments[1]);
    for (int round = 0; round < rounds; round++) {
      for (int threads : THREADS) {
        for (String operation : OPERATIONS) {
          for (String client : CLIENTS) {
            if (operation.equals("get100Ahead") && client.equals("xmemcached")) {
              continue;
            }
            measure(server, operation, threads, client);
          }
        }
      }
      System.err.println("round " + (round + 1) + " of " + rounds);
    }
    System.out.println("| operation | threads | client | operations/s | p50 us | p99 us | bytes allocated |");
    System.out.println("|---|--:|---|--:|--:|--:|--:|");
    for (String operation : OPERATIONS) {
      for (int threads : THREADS) {
        for (String client : CLIENTS) {
          var figures = FIGURES.get(name(operation, threads, client));
          if (figures != null) {
            System.out.printf(
                Locale.ROOT, "| %s | %d | %s | %.0f | %.1f | %.1f | %.0f |%n", operation, threads, client,
                median(figures.get("rate")), median(figures.get("p50")), median(figures.get("p99")),
                median(figures.get("bytes")));
          }
        }
      }
    }
  }

  private static void measure(String server, String operation, int threads, String client) throws Exception {
    for (Mode mode : List.of(Mode.Throughput, Mode.SampleTime)) {
      var options =
          new OptionsBuilder()
              .include("^" + Operations.class.getName().replace(".", "\\.") + "\\." + operation + "$")
              .param("client", client)
              .mode(mode)
              .threads(threads)
              .forks(1)
              .warmupIterations(2)
              .warmupTime(TimeValue.seconds(1))
              .measurementIterations(2)
              .measurementTime(TimeValue.seconds(1))
              .timeUnit(TimeUnit.MICROSECONDS)
              .addProfiler(GCProfiler.class)
              .jvmArgs("-Dcoua.server=" + server, "--enable-native-access=ALL-UNNAMED", "-Xmx512m")
              .verbosity(VerboseMode.SILENT)
              .shouldFailOnError(true)
              .build();
      for (RunResult result : new Runner(options).run()) {
        String name = name(operation, threads, client);
        if (mode == Mode.Throughput) {
          add(name, "rate", result.getPrimaryResult().getScore() * 1e6);
          result
              .getSecondaryResults()
              .forEach(
                  (label, figure) -> {
                    if (label.endsWith("gc.alloc.rate.norm")) {
                      add(name, "bytes", figure.getScore());
                    }
                  });
        } else {
          var times = result.getPrimaryResult().getStatistics();
          add(name, "p50", times.getPercentile(50));
          add(name, "p99", times.getPercentile(99));
        }
      }
    }
  }

  private static String name(String operation, int threads, String client) {
    return operation + " " + threads + " " + client;
  }

  private static void add(String name, String figure, double value) {
    FIGURES
        .computeIfAbsent(name, key -> new TreeMap<>())
        .computeIfAbsent(figure, key -> new ArrayList<>())
        .add(value);
  }

  private static double median(List<Double> values) {
    List<Double> sorted = new ArrayList<>(values);
    Collections.sort(sorted);
    return sorted.get(sorted.size() / 2);
  }
}
