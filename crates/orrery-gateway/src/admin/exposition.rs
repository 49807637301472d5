//! The two text formats of metrics: OpenMetrics, in which they are written, and the older Prometheus format for
//! scrapers and people that do not ask for the newer one.

use std::fmt::Write;

use http::HeaderMap;
use http::header::ACCEPT;

/// A format that a scraper can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Plain,
}

impl Format {
    /// What the client prefers. Without a preference it is the older format, which every scraper reads.
    pub(super) fn negotiate(headers: &HeaderMap) -> Self {
        let accepted: Vec<&str> =
            headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        let quality = |wanted: &str| {
            let ranges = accepted.iter().flat_map(|value| value.split(',')).map(Range::parse);
            ranges.filter(|range| range.name == wanted).map(|range| range.thousandths).max().unwrap_or(0)
        };
        let open_metrics = quality("application/openmetrics-text");
        // Prometheus lists both, with its preference; wildcards, as browsers and curl send them, count as no
        // preference.
        if open_metrics > 0 && open_metrics >= quality("text/plain") {
            Self::OpenMetrics
        } else {
            Self::Plain
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The text in this format, from OpenMetrics without its end marker.
    pub(super) fn write(self, mut open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => {
                open_metrics.push_str("# EOF\n");
                open_metrics
            }
            Self::Plain => plain(&open_metrics),
        }
    }
}

/// A media range with its quality.
struct Range<'a> {
    name: &'a str,
    thousandths: u32,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
        let thousandths = (quality.unwrap_or(0.0_f32).clamp(0.0, 1.0) * 1000.0) as u32;
        Self { name, thousandths }
    }
}

/// The same in the older format: families are named like their series, and there are no units.
fn plain(open_metrics: &str) -> String {
    // Searched from the start for each family: there are a few dozen of them, and they are scraped every few
    // seconds.
    let kind_of = |name: &str| {
        open_metrics.lines().find_map(|line| {
            let (found, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
            (found == name).then_some(kind)
        })
    };
    let mut out = String::with_capacity(open_metrics.len() + 512);
    for line in open_metrics.lines() {
        let described = line.strip_prefix("# HELP ").map(|rest| ("HELP", rest));
        let described = described.or_else(|| line.strip_prefix("# TYPE ").map(|rest| ("TYPE", rest)));
        match described.and_then(|(word, rest)| Some((word, rest.split_once(' ')?))) {
            Some((word, (name, text))) => {
                let (suffix, kind) = match kind_of(name) {
                    Some("counter") => ("_total", "counter"),
                    Some("info") => ("_info", "gauge"),
                    Some(kind) => ("", kind),
                    None => ("", "untyped"),
                };
                let text = if word == "TYPE" { kind } else { text };
                writeln!(out, "# {word} {name}{suffix} {text}").expect("a String accepts every write");
            }
            None if line.starts_with("# UNIT ") || line == "# EOF" => {}
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_format_follows_the_accept_header() {
        // What Prometheus 2 and 3 send, curl, a browser, and clients with a clear wish.
        for (accept, expected) in [
            (
                "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.4,*/*;q=0.2",
                Format::OpenMetrics,
            ),
            ("*/*", Format::Plain),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Plain),
            ("text/plain", Format::Plain),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Plain),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.8", Format::Plain),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(Format::negotiate(&headers), expected, "{accept}");
        }
        assert_eq!(Format::negotiate(&HeaderMap::new()), Format::Plain);
    }

    /// The conversions that https://prometheus.io/docs/instrumenting/exposition_formats/ asks for.
    #[test]
    fn counters_and_infos_are_named_like_their_series() {
        let text = "# HELP a Things.\n# TYPE a counter\na_total{x=\"1\"} 3\n# HELP b_seconds Time.\n\
                    # TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 1\n# HELP c C.\n# TYPE c info\n\
                    c_info{v=\"1\"} 1\n";
        assert_eq!(
            Format::Plain.write(text.to_owned()),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\"} 3\n# HELP b_seconds Time.\n\
             # TYPE b_seconds gauge\nb_seconds 1\n# HELP c_info C.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n"
        );
        assert!(Format::OpenMetrics.write(text.to_owned()).ends_with("c_info{v=\"1\"} 1\n# EOF\n"));
    }
}
