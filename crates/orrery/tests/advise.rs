//! The advisor end to end: a server records requests, and the advisor reads data and workload from it.

#![allow(clippy::unwrap_used, clippy::float_cmp, clippy::cast_precision_loss, reason = "tests")]
#![allow(clippy::format_push_string, reason = "files of tests are small")]

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
    // One file: it fetches nothing, and its only script copies definitions.
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("fetch("));
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("class=\"copy\">Copy</button>") && page.contains("clipboard.writeText"));
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

/// A file in a directory, and its path as text.
fn file(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn status_of(arguments: &[&str]) -> (i32, String, String) {
    let output = orrery(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_key_is_listed_with_its_size_and_usage() {
    let server = Server::start(&["--in-memory"]);
    let endpoint = server.url();
    let directory = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for number in 0..300 {
        lines += &format!("{{\"id\":\"i{number}\",\"customer\":\"c,{}\"}}\n", number % 30);
    }
    let items = file(&directory, "items.jsonl", &lines);
    let place = ["-d", "shop", "-c", "orders", "--endpoint", &endpoint];
    let create = ["import", &items, "--create", "--partition-key", "/customer", "--throughput", "24000"];
    let all: Vec<&str> = create.into_iter().chain(place).collect();
    run(&all);
    let keys = |format: &'static str| {
        let all: Vec<&str> = ["partitions", "keys", "--output", format].into_iter().chain(place).collect();
        run(&all)
    };
    let csv = keys("csv");
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "partitionKey,partition,items,bytes,requestUnits,throttled");
    assert_eq!(rows.len(), 31, "{csv}");
    let json: serde_json::Value = serde_json::from_str(&keys("json")).unwrap();
    let listed = json["keys"].as_array().unwrap();
    let mut names: Vec<&str> = listed.iter().map(|key| key["partitionKey"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 30);
    let partitions: std::collections::BTreeSet<&str> =
        listed.iter().map(|key| key["partition"].as_str().unwrap()).collect();
    assert_eq!(partitions.len(), 4, "24,000 RU/s are four partitions");
    let sum = |name: &str| listed.iter().map(|key| key[name].as_f64().unwrap()).sum::<f64>();
    assert_eq!(sum("items"), 300.0);
    // What a line of the file takes, with nothing added.
    let bytes: usize = lines.lines().map(str::len).sum();
    assert_eq!(sum("bytes"), bytes as f64);
    assert!(sum("requestUnits") > 300.0 * 5.0, "{}", sum("requestUnits"));
    assert!(keys("table").contains("30 logical partitions."));
    // Page by page the same, and a continuation of something else is refused.
    let mut client = server.client();
    let path = "/_orrery/partitions/keys?database=shop&container=orders&pageSize=7";
    let mut paged = Vec::new();
    let mut continuation = String::new();
    loop {
        let page = client.get(&format!("{path}&continuation={continuation}")).to_json();
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        let keys = page["keys"].as_array().unwrap();
        assert!(keys.len() <= 7);
        paged.extend(keys.iter().map(|key| key["partitionKey"].clone()));
        match page["continuation"].as_str() {
            Some(next) => next.clone_into(&mut continuation),
            None => break,
        }
    }
    assert_eq!(paged.len(), 30);
    let order: Vec<_> = listed.iter().map(|key| key["partitionKey"].clone()).collect();
    assert_eq!(paged, order);
    assert_eq!(client.send("GET", &format!("{path}&continuation=zz"), &[], b"").unwrap().status, 400);
}

#[test]
fn rules_are_checked_on_a_recording_a_server_and_data() {
    let server = Server::start(&["--in-memory"]);
    let endpoint = server.url();
    let directory = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for number in 0..2000 {
        lines += &format!(
            "{{\"id\":\"i{number}\",\"customer\":\"c{}\",\"city\":\"x{}\"}}\n",
            number % 50,
            number % 9
        );
    }
    let items = file(&directory, "items.jsonl", &lines);
    let place = ["-d", "shop", "-c", "orders", "--endpoint", &endpoint];
    let with = |first: &[&str]| {
        let all: Vec<&str> = first.iter().copied().chain(place).collect();
        run(&all)
    };
    with(&["import", &items, "--create", "--partition-key", "/customer", "--throughput", "24000"]);
    with(&["record", "start"]);
    let narrow = "SELECT * FROM c WHERE c.customer = 'c7'";
    let wide = "SELECT * FROM c WHERE UPPER(c.city) = 'X1'";
    for query in [narrow, wide] {
        with(&["query", "run", query, "--output", "jsonl"]);
    }
    // The client sends each of these to one partition, and hardly ever to the first.
    let others: Vec<String> =
        (10..18).map(|number| format!("SELECT c.id FROM c WHERE c.customer = 'c{number}'")).collect();
    for query in &others {
        with(&["query", "run", query, "--output", "jsonl"]);
    }
    with(&["record", "stop"]);
    let recording = file(&directory, "recording.jsonl", &with(&["record", "download"]));
    let recorded = std::fs::read_to_string(&recording).unwrap();
    assert!(recorded.contains(narrow) && recorded.contains(wide), "{recorded}");
    assert!(others.iter().all(|query| recorded.contains(query.as_str())), "{recorded}");
    let rules = "[limits]\npartitions = 1\nscan = false\ncharge = 100\n[traffic]\nthrottled_percent = 50\n[sizes]\nkey_percent = 50\nitem_percent = 50\n";
    let strict = file(&directory, "rules.toml", rules);
    let exception = format!(
        "{rules}[[operations]]\nmatch = \"*UPPER(*\"\npartitions = 100\nscan = true\ncharge = 100000\n"
    );
    let lenient = file(&directory, "lenient.toml", &exception);
    // The recording alone does not show the sizes of keys, and says so.
    let (code, text, _) = status_of(&["check", "--rules", &strict, "--workload", &recording]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains(&format!("FAILED  partitions ({wide}): visits 4 partitions")), "{text}");
    assert!(
        text.contains(&format!("FAILED  scan ({wide})")) && !text.contains(&format!("({narrow})")),
        "{text}"
    );
    assert!(text.contains("skipped key size (all)"), "{text}");
    let (code, text, _) = status_of(&["check", "--rules", &lenient, "--workload", &recording]);
    assert_eq!(code, 0, "{text}");
    // The server knows the sizes of keys, and how it runs the queries.
    let server_check = |rules: &str, format: &str| {
        let first = ["check", "--rules", rules, "--output", format];
        status_of(&first.into_iter().chain(place).collect::<Vec<_>>())
    };
    let (code, xml, _) = server_check(&strict, "junit");
    assert_eq!(code, 1, "{xml}");
    assert!(xml.contains("<testcase classname=\"orrery.check.scan\"") && xml.contains("<failure"), "{xml}");
    assert!(xml.contains("classname=\"orrery.check.key_size\" name=\"all\"/>"), "{xml}");
    let (code, text, _) = server_check(&lenient, "text");
    assert_eq!(code, 0, "{text}");
    // The same queries forecast on data: under another key the narrow one is wide as well.
    let workload = format!(
        "{{\"operations\":[{{\"operation\":\"create\",\"perSecond\":10}},{{\"operation\":\"query\",\"perSecond\":5,\"query\":{}}},{{\"operation\":\"query\",\"perSecond\":5,\"query\":{}}}]}}",
        serde_json::json!(narrow),
        serde_json::json!(wide)
    );
    let workload = file(&directory, "workload.json", &workload);
    let forecast = |key: &str| {
        let (code, text, error) = status_of(&[
            "check",
            "--rules",
            &strict,
            "--workload",
            &workload,
            "--data",
            &items,
            "--partition-key",
            key,
            "--throughput",
            "24000",
            "--output",
            "json",
        ]);
        assert_eq!(code, 1, "{error}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let cases = json["cases"].as_array().unwrap().clone();
        let failed =
            cases.into_iter().filter(|case| case["outcome"] == "failed" && case["rule"] == "partitions");
        failed.map(|case| case["subject"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(forecast("/customer"), [wide]);
    assert_eq!(forecast("/id"), [narrow, wide]);
    // Mistakes are not passes.
    let empty = file(&directory, "empty.toml", "[limits]\n");
    assert_eq!(status_of(&["check", "--rules", &empty, "--workload", &recording]).0, 2);
    assert_eq!(status_of(&["check", "--rules", &strict]).0, 2);
    assert_eq!(status_of(&["check", "--rules", &strict, "--workload", &workload]).0, 2);
}

#[test]
fn what_if_and_prices_vary_one_reading() {
    let directory = tempfile::tempdir().unwrap();
    let prices = file(
        &directory,
        "prices.toml",
        "currency = \"EUR\"\ndate = \"2026-11-18\"\nper_100_units_hour = 0.016\n",
    );
    let first = [
        "advise",
        "--example",
        "tenants",
        "--items-max",
        "5000",
        "--output",
        "json",
        "--throughput",
        "24000",
    ];
    let report = |more: &[&str]| -> serde_json::Value {
        let all: Vec<&str> = first.iter().chain(more).copied().collect();
        serde_json::from_str(&run(&all)).unwrap()
    };
    let listed = report(&["--what-if", "throughput=96000,growth=10", "--what-if", "writes=3"]);
    let answers = listed["whatIf"].as_array().unwrap();
    assert_eq!(answers.len(), 2);
    assert_eq!((&answers[0]["partitions"], &answers[0]["itemsTotal"]), (&16.into(), &50_000.0.into()));
    // The answer is what a run of its own says.
    let alone = report(&["--what-if", "reads=1"]);
    let own = &alone["whatIf"][0]["candidates"][0];
    assert_eq!(own["neededThroughput"]["now"], listed["candidates"][0]["neededThroughput"]["now"]);
    let first_need =
        |report: &serde_json::Value| report["candidates"][0]["neededThroughput"]["now"].as_f64().unwrap();
    assert!(first_need(&answers[1]) > 1.3 * first_need(&listed), "{}", answers[1]);
    let own_prices = report(&["--prices", &prices]);
    let cost = |report: &serde_json::Value| report["candidates"][0]["costPerMonth"].clone();
    assert_eq!(
        (&cost(&own_prices)["currency"], &cost(&own_prices)["pricesOf"]),
        (&"EUR".into(), &"2026-11-18".into())
    );
    let throughput =
        |cost: serde_json::Value| cost["manual"].as_f64().unwrap() - cost["storage"].as_f64().unwrap();
    assert!((throughput(cost(&own_prices)) / throughput(cost(&listed)) - 2.0).abs() < 1e-6);
    assert_eq!(status_of(&["advise", "--example", "tenants", "--what-if", "speed=2"]).0, 2);
    // For people, within 80 columns.
    let text = run(&["advise", "--example", "tenants", "--items-max", "5000", "--what-if", "growth=10"]);
    assert!(text.contains("What if\n") && text.contains("PER MONTH"), "{text}");
    let is_definition = |line: &str| line.contains('{') || line.contains("\":");
    let wide: Vec<&str> =
        text.lines().filter(|line| line.chars().count() > 80 && !is_definition(line)).collect();
    assert_eq!(wide, Vec::<&str>::new());
}

#[test]
fn logs_of_the_service_are_a_workload_and_advice_without_items() {
    let directory = tempfile::tempdir().unwrap();
    let mut requests = "TimeGenerated,ActivityId,CollectionName,DatabaseName,OperationName,RequestCharge,RequestResourceType,StatusCode,RequestResourceId\n".to_owned();
    let mut consumed = "TimeGenerated,ActivityId,CollectionName,DatabaseName,PartitionKey,PartitionKeyRangeId,RequestCharge\n".to_owned();
    let mut items = String::new();
    for number in 0..1200 {
        let customer = if number % 4 == 0 { 0 } else { number % 40 };
        items += &format!("{{\"id\":\"i{number}\",\"customer\":\"c{customer}\"}}\n");
        let time = format!("2026-11-18T10:{:02}:{:02}Z", number / 60, number % 60);
        let operation = if number % 3 == 0 { "Create" } else { "Read" };
        requests += &format!(
            "{time},a{number},orders,shop,{operation},2,Document,200,/dbs/shop/colls/orders/docs/i{number}\n"
        );
        consumed += &format!("{time},a{number},orders,shop,\"[\"\"c{customer}\"\"]\",{},2\n", customer % 3);
    }
    let (requests, consumed) =
        (file(&directory, "requests.csv", &requests), file(&directory, "keys.csv", &consumed));
    let items = file(&directory, "items.jsonl", &items);
    let logs = ["--service-logs", &requests, "--service-logs", &consumed, "--current-key", "/customer"];
    let alone: Vec<&str> = ["advise"].into_iter().chain(logs).collect();
    let text = run(&alone);
    assert!(text.contains("1,200 requests over 1,199 s, 2 RU/s; 0 % were throttled (429)."), "{text}");
    assert!(text.contains("[\"c0\"] took one in four request units."), "{text}");
    assert!(text.contains("Other keys cannot be measured without items"), "{text}");
    let whole: Vec<&str> =
        ["advise", &items, "--output", "json", "--throughput", "24000"].into_iter().chain(logs).collect();
    let report: serde_json::Value = serde_json::from_str(&run(&whole)).unwrap();
    assert_eq!((&report["workload"]["given"], &report["workload"]["requests"]), (&true.into(), &1200.into()));
    assert!(report["service"][0].as_str().unwrap().starts_with("1,200 requests"), "{report}");
    assert!(report["candidates"].as_array().unwrap().iter().any(|one| one["name"] == "/customer"));
}
