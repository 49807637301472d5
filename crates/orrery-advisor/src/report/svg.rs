//! Small plots as inline SVG. Colours come from CSS variables of the page, so that they follow light and dark mode.

use std::fmt::Write;

// About the width of a plot on most screens, so that font sizes are true.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 42.0;
/// Space above the plot for the unit of the left axis and the legend.
const TOP: f64 = 26.0;
const RIGHT: f64 = 14.0;
/// Approximate number of ticks on an axis.
const TICKS: f64 = 4.0;
/// The mark of a series in the legend.
const MARK: char = '\u{25cf}';
/// Most bars of a chart and most rows of a heat map that can be told apart.
const BARS_MAX: usize = 120;
const ROWS_MAX: usize = 64;

macro_rules! draw {
    ($out:expr, $($argument:tt)*) => { write!($out, $($argument)*).expect("a String accepts every write") };
}

/// A named series.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Escapes text for XML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats a tick label: `1.2k`, `3M`.
pub(super) fn short(number: f64) -> String {
    let (scaled, unit) = match number.abs() {
        n if n >= 1e12 => (number / 1e12, "T"),
        n if n >= 1e9 => (number / 1e9, "G"),
        n if n >= 1e6 => (number / 1e6, "M"),
        n if n >= 1e3 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let text = if scaled.abs() >= 100.0 || (scaled - scaled.round()).abs() < 0.05 {
        format!("{scaled:.0}")
    } else {
        format!("{scaled:.1}")
    };
    format!("{text}{unit}")
}

fn open(out: &mut String, title: &str) {
    draw!(
        out,
        r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}"><title>{}</title>"#,
        escape(title),
        escape(title)
    );
}

/// A tick distance of 1, 2 or 5 times a power of ten that divides `span` into a few parts.
fn round_step(span: f64) -> f64 {
    let rough = (span / TICKS).max(1e-12);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough * 0.999);
    step.unwrap_or(10.0) * power
}

/// Draws the left axis with round numbers; returns its maximum.
fn frame(out: &mut String, max: f64, unit: &str) -> f64 {
    let plot = HEIGHT - TOP - BOTTOM;
    let step = round_step(max);
    let steps = (max / step).ceil().max(1.0);
    let mut at = 0.0;
    while at <= steps {
        let y = TOP + plot * (1.0 - at / steps);
        let class = if at == 0.0 { "axis" } else { "grid" };
        draw!(
            out,
            r#"<line class="{class}" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
            WIDTH - RIGHT
        );
        draw!(
            out,
            r#"<text class="label" text-anchor="end" x="{:.1}" y="{:.1}">{}</text>"#,
            LEFT - 6.0,
            y + 4.0,
            short(at * step)
        );
        at += 1.0;
    }
    side(out, unit);
    steps * step
}

/// The left axis and its unit.
fn side(out: &mut String, unit: &str) {
    draw!(out, r#"<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{:.1}"/>"#, HEIGHT - BOTTOM);
    draw!(out, r#"<text class="label" x="4" y="13">{}</text>"#, escape(unit));
}

/// A tick on the bottom axis.
fn tick(out: &mut String, x: f64, text: &str) {
    let (y, anchor) = (HEIGHT - BOTTOM, if x > WIDTH - RIGHT - 12.0 { "end" } else { "middle" });
    draw!(out, r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{y:.1}" y2="{:.1}"/>"#, y + 4.0);
    let x = if anchor == "end" { WIDTH - 2.0 } else { x };
    draw!(
        out,
        r#"<text class="label" text-anchor="{anchor}" x="{x:.1}" y="{:.1}">{}</text>"#,
        y + 16.0,
        escape(text)
    );
}

/// Tick labels for some of `count` positions, starting at 1.
#[expect(clippy::cast_precision_loss, reason = "positions")]
fn number_ticks(out: &mut String, count: usize) {
    let width = (WIDTH - LEFT - RIGHT) / count.max(1) as f64;
    let step = round_step(count as f64).max(1.0);
    let mut shown = 0.0;
    for at in 0..count {
        let number = (at + 1) as f64;
        if at == 0 || number >= shown + step && (number / step).fract().abs() < 1e-9 {
            tick(out, LEFT + width * (at as f64 + 0.5), &short(number));
            shown = if at == 0 { 0.0 } else { number };
        }
    }
}

/// A bar chart, with an optional horizontal line at `mark`.
#[expect(clippy::cast_precision_loss, reason = "positions")]
pub(super) fn bars(title: &str, values: &[f64], mark: Option<f64>, unit: &str, below: &str) -> String {
    // With more values than can be drawn, each bar is the largest of its neighbours: peaks must be seen.
    let each = values.len().div_ceil(BARS_MAX).max(1);
    let bars: Vec<f64> = values.chunks(each).map(|chunk| chunk.iter().copied().fold(0.0, f64::max)).collect();
    let mut out = String::new();
    open(&mut out, title);
    let max = bars.iter().copied().chain(mark).fold(0.0, f64::max).max(1e-9);
    let max = frame(&mut out, max, unit);
    number_ticks(&mut out, values.len());
    let plot = HEIGHT - TOP - BOTTOM;
    let step = (WIDTH - LEFT - RIGHT) / (values.len().max(1) as f64 / each as f64);
    for (at, value) in bars.iter().enumerate() {
        let height = plot * value / max;
        let class = if mark.is_some_and(|mark| *value > mark) { "bar hot" } else { "bar" };
        draw!(
            out,
            r#"<rect class="{class}" x="{:.2}" y="{:.2}" width="{:.2}" height="{height:.2}"><title>{}: {} {}</title></rect>"#,
            LEFT + step * at as f64 + step * 0.08,
            TOP + plot - height,
            (step * 0.84).min(WIDTH - RIGHT - LEFT - step * at as f64),
            numbered(at, each, values.len()),
            short(*value),
            escape(unit)
        );
    }
    if let Some(mark) = mark {
        let y = TOP + plot * (1.0 - mark / max);
        draw!(out, r#"<line class="mark" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#, WIDTH - RIGHT);
    }
    let below =
        if each > 1 { format!("{below}; each bar is the largest of {each}") } else { below.to_owned() };
    foot(&mut out, &below);
    out
}

/// The numbers that a bar stands for, starting at 1: `5`, `5–8`.
fn numbered(at: usize, each: usize, count: usize) -> String {
    let (first, last) = (at * each + 1, ((at + 1) * each).min(count));
    if first == last { first.to_string() } else { format!("{first}\u{2013}{last}") }
}

fn foot(out: &mut String, below: &str) {
    draw!(
        out,
        r#"<text class="label" text-anchor="middle" x="{:.1}" y="{:.1}">{}</text></svg>"#,
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 8.0,
        escape(below)
    );
}

/// A line chart; the bottom axis may be logarithmic.
pub(super) fn lines(title: &str, series: &[Line<'_>], logarithmic: bool, unit: &str, below: &str) -> String {
    let mut out = String::new();
    open(&mut out, title);
    // The logarithmic axis begins at 1.
    let scale = |x: f64| if logarithmic { x.max(1.0).ln() } else { x };
    let points = || series.iter().flat_map(|line| &line.points);
    let max = points().map(|(_, y)| *y).fold(0.0, f64::max).max(1e-9);
    let from = points().map(|(x, _)| scale(*x)).fold(f64::INFINITY, f64::min);
    let to = points().map(|(x, _)| scale(*x)).fold(f64::NEG_INFINITY, f64::max);
    let max = frame(&mut out, max, unit);
    let plot = HEIGHT - TOP - BOTTOM;
    let place = |(x, y): &(f64, f64)| {
        // A single place is drawn in the middle.
        let part = if to > from { (scale(*x) - from) / (to - from) } else { 0.5 };
        (LEFT + (WIDTH - LEFT - RIGHT) * part, TOP + plot * (1.0 - y / max))
    };
    for (at, line) in series.iter().enumerate() {
        let text: Vec<String> = line
            .points
            .iter()
            .map(|point| {
                let (x, y) = place(point);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        draw!(out, r#"<polyline class="line s{}" points="{}"/>"#, at % 4, text.join(" "));
        // More dots than this would hide the line.
        for point in line.points.iter().filter(|_| line.points.len() <= 40) {
            let (x, y) = place(point);
            draw!(
                out,
                r#"<circle class="dot s{}" cx="{x:.1}" cy="{y:.1}" r="2.5"><title>{}: {} → {} {}</title></circle>"#,
                at % 4,
                escape(line.name),
                short(point.0),
                short(point.1),
                escape(unit)
            );
        }
    }
    names(&mut out, series);
    if logarithmic && from.is_finite() {
        let mut power = 1.0_f64;
        while power.ln() <= to + 1e-9 {
            if power.ln() >= from - 1e-9 {
                tick(&mut out, place(&(power, 0.0)).0, &short(power));
            }
            power *= 10.0;
        }
    } else if from.is_finite() && to > from {
        let step = round_step(to - from);
        let mut at = (from / step).ceil() * step;
        // With some room for errors of rounding.
        while at <= to + step * 1e-6 {
            tick(&mut out, place(&(at, 0.0)).0, &short(at));
            at += step;
        }
    }
    foot(&mut out, below);
    out
}

/// The legend above the plot, right-aligned. One text, so that marks and names never overlap, whatever the font.
fn names(out: &mut String, series: &[Line<'_>]) {
    draw!(out, r#"<text class="name" text-anchor="end" x="{:.1}" y="13">"#, WIDTH - RIGHT);
    for (at, line) in series.iter().enumerate() {
        let gap = if at > 0 { "\u{2003}" } else { "" };
        draw!(out, r#"{gap}<tspan class="s{}">{MARK} {}</tspan>"#, at % 4, escape(line.name));
    }
    draw!(out, "</text>");
}

/// A heat map: time from left (`start`) to right (`end`), partitions from top to bottom.
#[expect(clippy::cast_precision_loss, reason = "positions")]
pub(super) fn heat(title: &str, columns: &[Vec<f64>], (start, end): (&str, &str), below: &str) -> String {
    let mut out = String::new();
    open(&mut out, title);
    let partitions = columns.first().map_or(1, Vec::len).max(1);
    let each = partitions.div_ceil(ROWS_MAX).max(1);
    let grouped = |column: &Vec<f64>| column.chunks(each).map(|chunk| chunk.iter().sum()).collect();
    let columns: Vec<Vec<f64>> = columns.iter().map(grouped).collect();
    let cells = partitions.div_ceil(each);
    let plot = HEIGHT - TOP - BOTTOM;
    let (width, height) = ((WIDTH - LEFT - RIGHT) / columns.len().max(1) as f64, plot / cells as f64);
    for (at, column) in columns.iter().enumerate() {
        let sum: f64 = column.iter().sum();
        if sum <= 0.0 {
            continue;
        }
        for (cell, value) in column.iter().enumerate() {
            // An even share is pale, everything in one partition is saturated.
            let even = 1.0 / cells as f64;
            let share = value / sum;
            let strength = if cells == 1 { 0.3 } else { (share - even * 0.5).max(0.0) / (1.0 - even * 0.5) };
            let opacity = if share > 0.0 { 0.08 + 0.92 * strength.sqrt() } else { 0.0 };
            if opacity > 0.0 {
                // Cells overlap a little, so that no gaps show between them.
                draw!(
                    out,
                    r#"<rect class="heat" x="{:.2}" y="{:.2}" width="{:.2}" height="{:.2}" fill-opacity="{opacity:.2}"/>"#,
                    LEFT + width * at as f64,
                    TOP + height * cell as f64,
                    width + 0.3,
                    height + 0.3
                );
            }
        }
    }
    side(&mut out, "partition");
    draw!(
        out,
        r#"<line class="axis" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
        WIDTH - RIGHT,
        y = HEIGHT - BOTTOM
    );
    let rows = if cells > 1 { vec![1, cells] } else { vec![1] };
    for row in rows {
        draw!(
            out,
            r#"<text class="label" text-anchor="end" x="{:.1}" y="{:.1}">{row}</text>"#,
            LEFT - 6.0,
            (TOP + height * (row as f64 - 0.5) + 4.0).clamp(TOP + 10.0, HEIGHT - BOTTOM),
            row = if row == 1 { 1 } else { partitions },
        );
    }
    for (anchor, x, text) in [("start", LEFT, start), ("end", WIDTH - 2.0, end)] {
        draw!(
            out,
            r#"<text class="label" text-anchor="{anchor}" x="{x:.1}" y="{:.1}">{}</text>"#,
            HEIGHT - BOTTOM + 16.0,
            escape(text)
        );
    }
    scale(&mut out);
    let below = if each > 1 { format!("{below}; each row is {each} partitions") } else { below.to_owned() };
    foot(&mut out, &below);
    out
}

/// The colour scale of a heat map.
fn scale(out: &mut String) {
    const STEPS: u32 = 8;
    let x = WIDTH - RIGHT - 110.0;
    draw!(out, r#"<text class="label" text-anchor="end" x="{:.1}" y="13">even</text>"#, x - 4.0);
    for step in 0..STEPS {
        let part = f64::from(step) / f64::from(STEPS - 1);
        draw!(
            out,
            r#"<rect class="heat" x="{:.1}" y="4" width="6.2" height="10" fill-opacity="{:.2}"/>"#,
            x + f64::from(step) * 6.0,
            0.08 + 0.92 * part.sqrt()
        );
    }
    draw!(out, r#"<text class="label" x="{:.1}" y="13">all in one</text>"#, x + 54.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_partitions_are_drawn_as_bars_that_can_be_told_apart() {
        let mut values = vec![1.0; 1425];
        values[700] = 50.0;
        let svg = bars("Load", &values, None, "RU/s", "partition");
        let drawn = svg.matches("<rect").count();
        assert!((100..=BARS_MAX).contains(&drawn), "{drawn}");
        // The peak is not averaged away, and its bar names its partitions.
        assert!(svg.contains("<title>697\u{2013}708: 50 RU/s</title>"), "{svg}");
        assert!(svg.contains("each bar is the largest of 12"));
        let few = bars("Load", &[1.0, 2.0], None, "RU/s", "partition");
        assert!(few.contains("<title>2: 2 RU/s</title>") && !few.contains("largest of"));
        let map = heat("Heat", &vec![vec![1.0; 1425]; 64], ("0", "60"), "seconds");
        assert!(map.matches("class=\"heat\"").count() <= 64 * ROWS_MAX + 8);
        assert!(map.contains(">1425</text>") && map.contains("each row is 23 partitions"), "{map}");
    }

    #[test]
    fn a_legend_is_one_text() {
        let line = |name| Line { name, points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let svg = lines("Cost", &[line("needed"), line("used")], false, "RU/s", "suffixes");
        let legend = svg.split("<text class=\"name\"").nth(1).unwrap().split("</text>").next().unwrap();
        assert!(legend.contains(">\u{25cf} needed<") && legend.contains(">\u{25cf} used<"), "{legend}");
    }
}
