//! The text in which Prometheus reads series: its own format (0.0.4) and OpenMetrics 1.0.
//!
//! The two differ in little: in OpenMetrics a counter's family is named without `_total`, and the
//! text ends with `# EOF`.

use std::fmt::{Display, Write};

/// One of the two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    /// The format that a client asks for by its `Accept` header.
    pub(super) fn asked_for(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Prometheus,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Series being written, a family after the other.
pub(super) struct Exposition {
    text: String,
    format: Format,
}

/// A family of series, to which values are added.
pub(super) struct Family<'e> {
    text: &'e mut String,
    name: &'static str,
}

/// Names and values that tell series of a family apart.
pub(super) type Labels<'l> = &'l [(&'l str, &'l dyn Display)];

impl Exposition {
    pub(super) fn new(format: Format) -> Exposition {
        Exposition {
            text: String::with_capacity(16 << 10),
            format,
        }
    }

    /// A family of numbers that only rise. `name` ends with `_total`.
    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        let shown = match self.format {
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
            Format::Prometheus => name,
        };
        self.family(name, shown, "counter", help)
    }

    /// A family of numbers that rise and fall.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, name, "gauge", help)
    }

    /// A family of histograms.
    pub(super) fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, shown: &str, kind: &str, help: &str) -> Family<'_> {
        debug_assert!(!help.contains(['\n', '\\']), "{help} would need escapes");
        // Writing to a string does not fail, here and below.
        let _ = writeln!(self.text, "# HELP {shown} {help}");
        let _ = writeln!(self.text, "# TYPE {shown} {kind}");
        Family {
            text: &mut self.text,
            name,
        }
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

impl Family<'_> {
    /// Adds a series.
    pub(super) fn add(&mut self, labels: Labels<'_>, value: impl Display) -> &mut Self {
        self.line("", labels, &value)
    }

    /// Adds a histogram: counts of what is at most so many seconds, from the shortest on; all that
    /// was counted; and the sum of it in seconds.
    pub(super) fn add_histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: impl Iterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        for (end, count) in buckets {
            self.line("_bucket", &[labels, &[("le", &end)]].concat(), &count);
        }
        self.line("_bucket", &[labels, &[("le", &"+Inf")]].concat(), &count);
        self.line("_sum", labels, &sum);
        self.line("_count", labels, &count);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: &dyn Display) -> &mut Self {
        let _ = write!(self.text, "{}{suffix}", self.name);
        let mut open = '{';
        for (name, value) in labels {
            let value = value.to_string();
            let escaped = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.text, "{open}{name}=\"{escaped}\"");
            open = ',';
        }
        if open == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format) -> String {
        let mut all = Exposition::new(format);
        all.counter("a_total", "How many.")
            .add(&[], 7)
            .add(&[("by", &"x\"y\\"), ("n", &1)], 8);
        all.gauge("b", "What.").add(&[], 1.5);
        let buckets = [(0.001, 1), (0.1, 2)].into_iter();
        all.histogram("c", "Time.")
            .add_histogram(&[("k", &"v")], buckets, 3, 0.5);
        all.finish()
    }

    #[test]
    fn both_formats_are_as_prometheus_reads_them() {
        let body = "a_total 7\na_total{by=\"x\\\"y\\\\\",n=\"1\"} 8\n# HELP b What.\n# TYPE b gauge\nb 1.5\n\
            # HELP c Time.\n# TYPE c histogram\nc_bucket{k=\"v\",le=\"0.001\"} 1\n\
            c_bucket{k=\"v\",le=\"0.1\"} 2\nc_bucket{k=\"v\",le=\"+Inf\"} 3\nc_sum{k=\"v\"} 0.5\n\
            c_count{k=\"v\"} 3\n";
        assert_eq!(
            written(Format::Prometheus),
            format!("# HELP a_total How many.\n# TYPE a_total counter\n{body}")
        );
        assert_eq!(
            written(Format::OpenMetrics),
            format!("# HELP a How many.\n# TYPE a counter\n{body}# EOF\n")
        );
    }

    #[test]
    fn openmetrics_is_for_who_asks_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
        assert_eq!(Format::asked_for(prometheus), Format::OpenMetrics);
        assert_eq!(Format::asked_for("*/*"), Format::Prometheus);
        assert_eq!(Format::asked_for(""), Format::Prometheus);
    }
}
