//! The advisor end to end: a server records requests, and the advisor reads data and workload from it.

#![allow(clippy::unwrap_used, clippy::float_cmp, clippy::cast_precision_loss, reason = "tests")]

mod common;

use std::io::Write;
use std::process::{Command, Stdio};

use common::{Server, orrery};

/// Runs a command that must succeed.
fn run(arguments: &[&str]) -> String {
    let output = orrery(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_recording_is_a_workload_and_holds_no_items() {
    let server = Server::start(&["--in-memory"]);
    let endpoint = server.url();
    let directory = tempfile::tempdir().unwrap();
    let items = directory.path().join("items.jsonl");
    let mut file = std::fs::File::create(&items).unwrap();
    for number in 0..200 {
        writeln!(file, r#"{{"id":"i{number}","customer":"c{}","secret":"hidden-{number}"}}"#, number % 20)
            .unwrap();
    }
    drop(file);
    let (items, endpoint) = (items.to_str().unwrap(), endpoint.as_str());
    let place = ["-d", "shop", "-c", "orders", "--endpoint", endpoint];
    let with = |first: &[&'static str]| {
        let all: Vec<&str> = first.iter().copied().chain(place).collect();
        run(&all)
    };
    let import = |more: &[&str]| {
        let all: Vec<&str> = ["import", items].iter().chain(&place).chain(more).copied().collect();
        run(&all)
    };
    import(&["--create", "--partition-key", "/customer"]);
    with(&["record", "start"]);
    import(&[]);
    let stopped: serde_json::Value = serde_json::from_str(&with(&["record", "stop"])).unwrap();
    assert_eq!(stopped["running"], false, "{stopped}");
    // Requests after the stop are not recorded.
    import(&[]);
    let recording = with(&["record", "download"]);
    let lines: Vec<serde_json::Value> =
        recording.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["recording"], &lines[0]["partitionKey"][0]), (&1.into(), &"/customer".into()));
    assert_eq!(lines[0]["requests"], lines.len() - 1);
    assert!(lines.len() > 1 && !recording.contains("hidden-"), "{recording}");
    // A bulk import counts as one request per item; throttled ones are marked.
    let done: Vec<_> = lines[1..].iter().filter(|line| line["status"] != 429).collect();
    assert!(done.len() >= 200, "{}", done.len());
    for line in &done {
        assert_eq!(line["operation"], "upsert", "{line}");
        assert!(
            line["id"].as_str().unwrap().starts_with('i') && line["charge"].as_f64().unwrap() > 0.0,
            "{line}"
        );
    }
    let workload = directory.path().join("recording.jsonl");
    std::fs::write(&workload, &recording).unwrap();
    let workload = workload.to_str().unwrap();
    let all: Vec<&str> =
        ["advise", "--workload", workload, "--output", "json"].iter().chain(&place).copied().collect();
    let report: serde_json::Value = serde_json::from_str(&run(&all)).unwrap();
    assert_eq!(report["data"]["items"], 200);
    let names: Vec<&str> =
        report["candidates"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"/customer") && names.contains(&"/id"), "{names:?}");
    with(&["record", "discard"]);
    assert_eq!(run(&["record", "list", "--endpoint", endpoint]), "");
    assert!(!orrery(&["record", "stop"]).args(place).output().unwrap().status.success());
}

#[test]
fn html_reports_are_self_contained_and_simulations_repeat() {
    let page = run(&["advise", "--example", "telemetry", "--items-max", "2000", "--output", "html"]);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    // One file: it fetches nothing and runs nothing.
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(
        page.contains("Heat over time") && page.contains("Growth") && page.contains("Recommended: /deviceId")
    );
    let directory = tempfile::tempdir().unwrap();
    let scenario = directory.path().join("scenario.toml");
    std::fs::write(&scenario, "days = 30\n[keys]\nkind = \"time\"\nsuffixes = 10\n").unwrap();
    let scenario = scenario.to_str().unwrap();
    let first = run(&["simulate", scenario, "--output", "json"]);
    assert_eq!(first, run(&["simulate", scenario, "--output", "json"]));
    let outcome: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(outcome["days"].as_array().unwrap().len(), 30);
    assert!(run(&["simulate", scenario, "--output", "html"]).contains("</html>"));
    let plan = run(&["advise", "suffix", "--writes", "1000", "--throughput", "48000", "--output", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert!(plan["best"].as_u64().unwrap() > 8 && plan["curve"].as_array().unwrap().len() > 10, "{plan}");
    let refused = orrery(&["simulate", "no-such-file"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
}

/// Every figure of a report, for candidates whose values follow from how the sample data is generated.
#[test]
fn every_figure_is_reported() {
    let arguments = ["advise", "--example", "tenants", "--items-max", "5000", "--output", "json"];
    let report: serde_json::Value = serde_json::from_str(&run(&arguments)).unwrap();
    let candidates = report["candidates"].as_array().unwrap();
    let named = |name: &str| {
        let found = candidates.iter().find(|candidate| candidate["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not among the candidates"))
    };
    let number =
        |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"));
    let tenant = named("/tenantId");
    let partitions = usize::try_from(report["partitions"].as_u64().unwrap()).unwrap();
    // One giant tenant and 300 others; the giant has three items in ten.
    assert!((250.0..=310.0).contains(&number(&tenant["distinctValues"])));
    assert!((0.25..=0.35).contains(&number(&tenant["largestKey"]["share"])));
    assert_eq!(tenant["heaviestKeys"][0]["key"], r#"["tenant-000"]"#);
    assert!(
        number(&tenant["largestKey"]["bytes"]) > 0.0 && number(&tenant["largestKey"]["daysUntilFull"]) > 0.0
    );
    let spread = &tenant["spread"];
    assert_eq!(spread["items"].as_array().unwrap().len(), partitions);
    assert_eq!(spread["items"].as_array().unwrap().iter().map(number).sum::<f64>(), 5000.0);
    assert!(number(&spread["unevenness"]) > 1.0 && number(&spread["unevennessInTime"]) > 1.0);
    let growth = tenant["growth"].as_array().unwrap();
    assert!(growth.len() > 3 && growth.iter().all(|stage| number(&stage["partitions"]) >= partitions as f64));
    // Every request specifies the tenant, so nothing fans out; reads by id and key are point reads.
    let reads = &tenant["reads"];
    assert!(number(&reads["pointShare"]) > 0.3 && number(&reads["singlePartitionShare"]) > 0.5);
    assert_eq!(number(&reads["fanOutShare"]), 0.0);
    // Queries that do not specify the key fan out.
    let unknown =
        candidates.iter().find(|candidate| number(&candidate["reads"]["fanOutShare"]) > 0.0).unwrap();
    assert!(number(&unknown["reads"]["fanOutPartitions"]) > 1.0);
    assert!(number(&tenant["requestUnitsPerHour"]) > 0.0);
    assert!(number(&tenant["throttled"]["share"]) >= 0.0 && number(&tenant["hotFactor"]) > 1.0);
    assert!(number(&tenant["neededThroughput"]["inAYear"]) >= number(&tenant["neededThroughput"]["now"]));
    assert!(!tenant["against"].as_array().unwrap().is_empty(), "the giant is a reason against it");
    assert!(!candidates[0]["for"].as_array().unwrap().is_empty());
    assert!(!report["suffixPlans"].as_array().unwrap().is_empty());
    // Transactions: possible by customer, lost by date.
    let arguments =
        ["advise", "--example", "orders", "--items-max", "4000", "--candidate", "/date", "--output", "json"];
    let report: serde_json::Value = serde_json::from_str(&run(&arguments)).unwrap();
    let of = |name: &str| {
        let all = report["candidates"].as_array().unwrap();
        all.iter().find(|candidate| candidate["name"] == name).unwrap()["transactions"].clone()
    };
    assert_eq!(of("/customerId"), "kept");
    assert!(of("/date")["lost"].as_f64().is_some_and(|share| share > 0.9), "{}", of("/date"));
}

/// Renders each page in browser frames (wide, narrow, and wide in dark mode) and measures the plots.
const SHOWN: &str = r#"<!doctype html><meta charset="utf-8"><body><script>
"use strict";
const pages = PAGES, found = [], errors = [];
function luminance(color) {
  const [r, g, b] = color.match(/[\d.]+/g).map((part) => part / 255)
    .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(ink, paper) {
  const [a, b] = [luminance(ink), luminance(paper)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
function measure(frame, name, look) {
  const page = frame.contentDocument, style = (element) => frame.contentWindow.getComputedStyle(element);
  const plots = [...page.querySelectorAll("svg")].map((svg) => {
    const view = svg.viewBox.baseVal;
    const boxes = [...svg.querySelectorAll("text")].map((text) => [text.getBBox(), text.textContent]);
    const outside = boxes.filter(([box]) => box.x < -0.5 || box.y < -0.5 || box.x + box.width > view.width + 0.5
      || box.y + box.height > view.height + 0.5).map(([, text]) => text);
    const overlapping = [];
    boxes.forEach(([a, first], at) => boxes.slice(at + 1).forEach(([b, second]) => {
      if (a.x < b.x + b.width && b.x < a.x + a.width && a.y + 2 < b.y + b.height && b.y + 2 < a.y + a.height) {
        overlapping.push(first + " / " + second);
      }
    }));
    const marks = [...svg.querySelectorAll("rect,polyline")].filter((mark) => {
      const box = mark.getBoundingClientRect();
      return box.width > 0 && style(mark).display !== "none";
    });
    const size = svg.getBoundingClientRect();
    const first = svg.querySelector("text");
    return { title: svg.querySelector("title").textContent, marks: marks.length, texts: boxes.length, outside, overlapping,
      letters: parseFloat(style(first).fontSize) * size.width / view.width, shown: size.width > 200 && size.height > 80 };
  });
  const paper = style(page.body).backgroundColor, dim = page.querySelector(".dim,figcaption");
  found.push({ name, look, plots, overflow: page.documentElement.scrollWidth - frame.clientWidth,
    contrast: Math.min(contrast(style(page.body).color, paper), contrast(style(dim).color, paper)),
    fetched: frame.contentWindow.performance.getEntriesByType("resource").length });
}
window.onerror = (message) => { errors.push(message); };
let left = 0;
function done() {
  const out = document.createElement("pre");
  out.id = "measured";
  out.textContent = JSON.stringify({ found, errors });
  document.body.append(out);
}
for (const [name, html] of Object.entries(pages)) {
  for (const [look, width] of [["wide", 1200], ["narrow", 390], ["dark", 1200]]) {
    const frame = document.createElement("iframe");
    frame.style = `width:${width}px;height:2000px;border:0`;
    const dark = (text) => text.replace("@media(prefers-color-scheme:dark)", "@media all");
    frame.srcdoc = look === "dark" ? dark(html) : html;
    left += 1;
    frame.onload = () => {
      frame.contentWindow.onerror = (message) => { errors.push(message); };
      try { measure(frame, name, look); } catch (error) { errors.push(String(error)); }
      left -= 1;
      if (left === 0) done();
    };
    document.body.append(frame);
  }
}
</script></body>"#;

#[test]
fn plots_render_in_a_browser() {
    let advice = run(&["advise", "--example", "vehicles", "--items-max", "5000", "--output", "html"]);
    let directory = tempfile::tempdir().unwrap();
    let scenario = directory.path().join("scenario.toml");
    std::fs::write(&scenario, "days = 60\n[keys]\nkind = \"time\"\nsuffixes = 10\n").unwrap();
    let simulation = run(&["simulate", scenario.to_str().unwrap(), "--output", "html"]);
    let pages = serde_json::json!({ "advice": advice, "simulation": simulation }).to_string();
    let file = directory.path().join("shown.html");
    std::fs::write(&file, SHOWN.replace("PAGES", &pages.replace("</", "<\\/"))).unwrap();

    let profile = directory.path().join("profile");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", file.display()))
        .env("HOME", directory.path())
        .stdin(Stdio::null())
        .output()
        .expect("Chromium shows the pages: scripts/setup.sh browser installs it");
    let shown = String::from_utf8(output.stdout).unwrap();
    let measured = shown.split_once("<pre id=\"measured\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let Some((measured, _)) = measured else {
        panic!("nothing was measured: {}", String::from_utf8_lossy(&output.stderr));
    };
    let measured = measured.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let measured: serde_json::Value = serde_json::from_str(&measured).unwrap();
    assert_eq!(measured["errors"], serde_json::json!([]));
    let found = measured["found"].as_array().unwrap();
    assert_eq!(found.len(), 6);
    for page in found {
        let place = format!("{} {}", page["name"], page["look"]);
        let plots = page["plots"].as_array().unwrap();
        let wanted: &[&str] = if page["name"] == "advice" {
            &[
                "Bytes by partition",
                "Load by partition",
                "Heat over time",
                "Heat of the replay",
                "Growth",
                "Cost by suffix count",
            ]
        } else {
            &["Load", "Throttling", "Partitions", "Data", "Heat", "Cost", "Bytes by partition"]
        };
        for title in wanted {
            assert!(plots.iter().any(|plot| plot["title"] == *title), "{place}: no plot of {title}");
        }
        for plot in plots {
            assert!(
                plot["marks"].as_u64().unwrap() > 0 && plot["texts"].as_u64().unwrap() >= 4,
                "{place}: {plot}"
            );
            assert!(plot["shown"] == true && plot["letters"].as_f64().unwrap() >= 9.0, "{place}: {plot}");
            assert_eq!(plot["outside"], serde_json::json!([]), "{place}: {plot}");
            assert_eq!(plot["overlapping"], serde_json::json!([]), "{place}: {plot}");
        }
        assert!(page["overflow"].as_i64().unwrap() <= 0, "{place} is wider than its window");
        assert!(page["contrast"].as_f64().unwrap() >= 4.5, "{place}: {}", page["contrast"]);
        assert_eq!(page["fetched"], 0, "{place} fetches something");
    }
}
