//! Bar charts as SVG, on a logarithmic axis because the systems differ by orders of magnitude.

use std::fmt::Write;

/// Colours that people with colour blindness tell apart; the legend and the order say the same.
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#999999"];

pub struct Group {
    pub title: String,
    /// One for each series; none where there is no figure.
    pub values: Vec<Option<f64>>,
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 250.0;
const BAR: f64 = 11.0;

/// Horizontal bars, grouped.
pub fn bars(title: &str, unit: &str, series: &[String], groups: &[Group]) -> String {
    let values =
        || groups.iter().flat_map(|group| group.values.iter().flatten().copied()).filter(|v| *v > 0.0);
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0_f64, f64::max);
    let (low, high) = if low.is_finite() { (low.log10().floor(), high.log10().ceil()) } else { (0.0, 1.0) };
    let high = if high <= low { low + 1.0 } else { high };
    let place = |value: f64| LEFT + (value.log10() - low) / (high - low) * (WIDTH - LEFT - 90.0);
    let group_height = BAR * series.len() as f64 + 12.0;
    let top = 62.0;
    let height = top + group_height * groups.len() as f64 + 30.0;
    let mut svg = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        svg.write_fmt(text).expect("a String accepts every write");
        svg.push('\n');
    };
    line(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">"
    ));
    line(format_args!("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"));
    line(format_args!(
        "<text x=\"10\" y=\"20\" font-size=\"15\" font-weight=\"bold\">{}</text>",
        escaped(title)
    ));
    let mut x = 10.0;
    for (name, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        line(format_args!("<rect x=\"{x}\" y=\"32\" width=\"11\" height=\"11\" fill=\"{colour}\"/>"));
        line(format_args!("<text x=\"{}\" y=\"42\">{}</text>", x + 16.0, escaped(name)));
        x += 40.0 + 6.5 * name.chars().count() as f64;
    }
    let mut decade = low;
    while decade <= high {
        let at = place(10_f64.powf(decade));
        let bottom = height - 24.0;
        line(format_args!(
            "<line x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" stroke=\"#dddddd\"/>"
        ));
        line(format_args!(
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            height - 10.0,
            short(10_f64.powf(decade))
        ));
        decade += 1.0;
    }
    line(format_args!("<text x=\"10\" y=\"{:.1}\">{}</text>", height - 10.0, escaped(unit)));
    for (number, group) in groups.iter().enumerate() {
        let y = top + group_height * number as f64 + 6.0;
        let middle = y + BAR * series.len() as f64 / 2.0 + 4.0;
        line(format_args!(
            "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            escaped(&group.title)
        ));
        for (at, (value, colour)) in group.values.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let y = y + BAR * at as f64;
            match value.filter(|value| *value > 0.0) {
                Some(value) => {
                    let width = (place(value) - LEFT).max(1.0);
                    line(format_args!(
                        "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                        BAR - 1.0
                    ));
                    line(format_args!(
                        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\">{}</text>",
                        LEFT + width + 4.0,
                        y + 8.5,
                        short(value)
                    ));
                }
                None => line(format_args!(
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\" fill=\"#777777\">fails</text>",
                    LEFT + 4.0,
                    y + 8.5
                )),
            }
        }
    }
    line(format_args!("</svg>"));
    svg
}

/// A number in few characters.
pub fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6).replace(".0M", "M"),
        value if value >= 10_000.0 => format!("{:.0}k", value / 1e3),
        value if value >= 1000.0 => format!("{:.1}k", value / 1e3).replace(".0k", "k"),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}").replace(".0", ""),
        value => format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.25, "0.25"),
            (1.0, "1"),
            (12.5, "12.5"),
            (640.2, "640"),
            (1234.0, "1.2k"),
            (98_000.0, "98k"),
            (2e6, "2M"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn plots_survive_missing_figures() {
        let groups = [Group { title: "a<b".to_owned(), values: vec![Some(10.0), None] }];
        let svg = bars("t", "ops", &["x".to_owned(), "y".to_owned()], &groups);
        assert!(svg.contains("a&lt;b") && svg.contains("fails") && svg.ends_with("</svg>\n"));
    }
}
