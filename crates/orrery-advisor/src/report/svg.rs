//! Small plots as inline SVG. Colours come from the page's variables, so that they follow light and dark.

use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 30.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 12.0;

macro_rules! draw {
    ($out:expr, $($argument:tt)*) => { write!($out, $($argument)*).expect("a String accepts every write") };
}

/// A line with its name.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Text in XML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `1.2k`, `3M`.
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

fn frame(out: &mut String, max: f64, unit: &str) {
    let plot = HEIGHT - TOP - BOTTOM;
    for step in 0..=2 {
        let part = f64::from(step) / 2.0;
        let y = TOP + plot * (1.0 - part);
        draw!(out, r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#, WIDTH - RIGHT);
        draw!(
            out,
            r#"<text class="label" text-anchor="end" x="{:.1}" y="{:.1}">{}{unit}</text>"#,
            LEFT - 6.0,
            y + 4.0,
            short(max * part)
        );
    }
}

/// Bars, one for each value, with an optional line across at `mark`.
#[expect(clippy::cast_precision_loss, reason = "positions")]
pub(super) fn bars(title: &str, values: &[f64], mark: Option<f64>, unit: &str, below: &str) -> String {
    let mut out = String::new();
    open(&mut out, title);
    let max = values.iter().copied().chain(mark).fold(0.0, f64::max).max(1e-9) * 1.05;
    frame(&mut out, max, unit);
    let plot = HEIGHT - TOP - BOTTOM;
    let step = (WIDTH - LEFT - RIGHT) / values.len().max(1) as f64;
    for (at, value) in values.iter().enumerate() {
        let height = plot * value / max;
        let class = if mark.is_some_and(|mark| *value > mark) { "bar hot" } else { "bar" };
        draw!(
            out,
            r#"<rect class="{class}" x="{:.2}" y="{:.2}" width="{:.2}" height="{height:.2}"><title>{at}: {}{unit}</title></rect>"#,
            LEFT + step * at as f64 + step * 0.08,
            TOP + plot - height,
            step * 0.84,
            short(*value)
        );
    }
    if let Some(mark) = mark {
        let y = TOP + plot * (1.0 - mark / max);
        draw!(out, r#"<line class="mark" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#, WIDTH - RIGHT);
    }
    foot(&mut out, below);
    out
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

/// Lines over a common axis, which may be logarithmic.
pub(super) fn lines(title: &str, series: &[Line<'_>], logarithmic: bool, unit: &str, below: &str) -> String {
    let mut out = String::new();
    open(&mut out, title);
    let scale = |x: f64| if logarithmic { x.max(1.0).ln() } else { x };
    let points = || series.iter().flat_map(|line| &line.points);
    let max = points().map(|(_, y)| *y).fold(0.0, f64::max).max(1e-9) * 1.05;
    let from = points().map(|(x, _)| scale(*x)).fold(f64::INFINITY, f64::min);
    let to = points().map(|(x, _)| scale(*x)).fold(f64::NEG_INFINITY, f64::max);
    frame(&mut out, max, unit);
    let plot = HEIGHT - TOP - BOTTOM;
    let place = |(x, y): &(f64, f64)| {
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
        for point in line.points.iter().filter(|_| line.points.len() <= 40) {
            let (x, y) = place(point);
            draw!(
                out,
                r#"<circle class="dot s{}" cx="{x:.1}" cy="{y:.1}" r="2.5"><title>{}: {} → {}{unit}</title></circle>"#,
                at % 4,
                escape(line.name),
                short(point.0),
                short(point.1)
            );
        }
        draw!(
            out,
            r#"<text class="label s{}" text-anchor="end" x="{:.1}" y="{:.1}">{}</text>"#,
            at % 4,
            WIDTH - RIGHT - 4.0,
            TOP + 12.0 + f64::from(u32::try_from(at).unwrap_or(0)) * 13.0,
            escape(line.name)
        );
    }
    for (anchor, at) in [("start", from), ("end", to)] {
        let (x, value) = if anchor == "start" { (LEFT, at) } else { (WIDTH - RIGHT, at) };
        let value = if logarithmic { value.exp() } else { value };
        if value.is_finite() {
            draw!(
                out,
                r#"<text class="label" text-anchor="{anchor}" x="{x:.1}" y="{:.1}">{}</text>"#,
                HEIGHT - 8.0,
                short(value)
            );
        }
    }
    foot(&mut out, below);
    out
}

/// Heat: time to the right, the key space downwards.
#[expect(clippy::cast_precision_loss, reason = "positions")]
pub(super) fn heat(title: &str, columns: &[Vec<f64>], below: &str) -> String {
    let mut out = String::new();
    open(&mut out, title);
    let cells = columns.first().map_or(1, Vec::len).max(1);
    let plot = HEIGHT - TOP - BOTTOM;
    let (width, height) = ((WIDTH - LEFT - RIGHT) / columns.len().max(1) as f64, plot / cells as f64);
    for (at, column) in columns.iter().enumerate() {
        let sum: f64 = column.iter().sum();
        if sum <= 0.0 {
            continue;
        }
        for (cell, value) in column.iter().enumerate() {
            // An even share is pale, everything in one place is full.
            let even = 1.0 / cells as f64;
            let share = value / sum;
            let strength = if cells == 1 { 0.3 } else { (share - even * 0.5).max(0.0) / (1.0 - even * 0.5) };
            let opacity = if share > 0.0 { 0.08 + 0.92 * strength.sqrt() } else { 0.0 };
            if opacity > 0.0 {
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
    for (y, name) in [(TOP + 10.0, "first"), (TOP + plot, "last")] {
        draw!(out, r#"<text class="label" text-anchor="end" x="{:.1}" y="{y:.1}">{name}</text>"#, LEFT - 6.0);
    }
    foot(&mut out, below);
    out
}
