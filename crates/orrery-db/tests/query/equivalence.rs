//! Random documents, indexing policies and queries: the index gives the rows that a scan gives, which are the
//! rows that the language gives over the same documents in memory.

use std::sync::Arc;

use orrery_db::FeedScope;
use orrery_model::Value;
use orrery_query::context::{Context, Policies, Random};
use orrery_query::pipeline::{Options, Pipeline, Row};
use orrery_query::{Program, check, compile::Settings};

use crate::common::env::Dice;
use crate::common::{BY_PK, CONTAINER, DATABASE, Engine, World, everything, key};
use crate::run::{self, Way, request, same_multiset};

const LONG: usize = 140;

/// A value of any type; few different ones, so that they meet.
fn value(dice: &mut Dice, depth: u32) -> String {
    match dice.below(if depth > 0 { 14 } else { 11 }) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => "false".to_owned(),
        3..=5 => (dice.below(7) as i64 - 2).to_string(),
        6 => dice.pick(&["0.5", "-0.0", "1e300", "2.5", "9007199254740993", "9007199254740992"]).to_string(),
        7 | 8 => format!("\"{}\"", dice.pick(&["", "a", "ab", "abc", "b", "B", "\\u0000", "é", "a/b"])),
        // Longer than what the index keeps, and different only behind that.
        9 => format!("\"{}{}\"", "x".repeat(LONG), dice.pick(&["", "1", "2"])),
        10 => format!("\"{}{}\"", "y".repeat(30), dice.pick(&["", "1", "22", "333"])),
        11 => "{}".to_owned(),
        12 => {
            let items: Vec<String> = (0..dice.below(4)).map(|_| value(dice, depth - 1)).collect();
            format!("[{}]", items.join(","))
        }
        _ => format!("{{\"x\":{},\"y\":{}}}", value(dice, depth - 1), value(dice, depth - 1)),
    }
}

pub fn document(dice: &mut Dice, number: u64) -> String {
    let mut members = vec![format!("\"id\":\"d{number}\"")];
    match dice.below(12) {
        0 => {}
        1 => members.push("\"pk\":null".to_owned()),
        2 => members.push("\"pk\":7".to_owned()),
        _ => members.push(format!("\"pk\":\"k{}\"", dice.below(5))),
    }
    for name in ["a", "b", "c", "a/b"] {
        if !dice.one_in(4) {
            members.push(format!("\"{name}\":{}", value(dice, 2)));
        }
    }
    // Numbers only, so that sums are exact and orders are plain.
    members.push(format!("\"n\":{}", dice.below(6)));
    members.push(format!("\"u\":{}", number * 7 % 101));
    if !dice.one_in(3) {
        let tags: Vec<String> = (0..dice.below(4)).map(|_| value(dice, 0)).collect();
        members.push(format!("\"tags\":[{}]", tags.join(",")));
    }
    if !dice.one_in(3) {
        let kids: Vec<String> = (0..dice.below(3))
            .map(|_| format!("{{\"x\":{},\"y\":{}}}", value(dice, 0), dice.below(3)))
            .collect();
        members.push(format!("\"kids\":[{}]", kids.join(",")));
    }
    format!("{{{}}}", members.join(","))
}

/// The policies, each with the number of its composite index that queries may sort by.
pub const POLICIES: [&str; 8] = [
    r#"{"indexingMode":"consistent","includedPaths":[{"path":"/*"}]}"#,
    r#"{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/a"},{"path":"/n"}],[{"path":"/n","order":"descending"},{"path":"/b","order":"ascending"}],[{"path":"/b"},{"path":"/a"},{"path":"/u","order":"descending"}]]}"#,
    r#"{"includedPaths":[{"path":"/a/?"},{"path":"/n/?"},{"path":"/tags/[]/?"}],"excludedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/a","order":"descending"},{"path":"/n"}]]}"#,
    r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/a/*"},{"path":"/tags/*"},{"path":"/kids/[]/x/?"}]}"#,
    r#"{"includedPaths":[{"path":"/kids/[]/x/?"},{"path":"/b/*"},{"path":"/u/?"}],"excludedPaths":[{"path":"/*"}]}"#,
    r#"{"includedPaths":[{"path":"/*"},{"path":"/a/x/?"}],"excludedPaths":[{"path":"/a/?"},{"path":"/a/y/?"}]}"#,
    r#"{"indexingMode":"none","automatic":false}"#,
    r#"{"includedPaths":[{"path":"/\"a/b\"/?"},{"path":"/a/b/?"},{"path":"/id/?"}],"excludedPaths":[{"path":"/*"}]}"#,
];

const PATHS: [&str; 17] = [
    "c.a",
    "c.b",
    "c.c",
    "c[\"a/b\"]",
    "c.a.b",
    "c.n",
    "c.u",
    "c.a.x",
    "c.b.y",
    "c.tags[0]",
    "c.kids[0].x",
    "c.id",
    "c.pk",
    "c._ts",
    "c._rid",
    "c.none",
    "c.b[1]",
];

fn literal(dice: &mut Dice) -> String {
    if dice.one_in(12) { "undefined".to_owned() } else { value(dice, 1) }
}

fn text_literal(dice: &mut Dice) -> String {
    format!("\"{}\"", dice.pick(&["", "a", "ab", "x", "y", "d1", "k", "xxxxxxxxxx"]))
}

fn predicate(dice: &mut Dice, depth: u32) -> String {
    let path = *dice.pick(&PATHS);
    match dice.below(if depth > 0 { 28 } else { 19 }) {
        0..=2 => format!("{path} = {}", literal(dice)),
        3 => format!("{path} != {}", literal(dice)),
        4..=6 => format!("{path} {} {}", dice.pick(&["<", "<=", ">", ">="]), literal(dice)),
        7 => format!("({path} BETWEEN {} AND {})", literal(dice), literal(dice)),
        8 | 9 => {
            let members: Vec<String> = (0..=dice.below(3)).map(|_| literal(dice)).collect();
            format!("{path} {}IN ({})", if dice.one_in(4) { "NOT " } else { "" }, members.join(", "))
        }
        10 => {
            format!("STARTSWITH({path}, {}{})", text_literal(dice), dice.pick(&["", "", ", true", ", false"]))
        }
        11 => {
            let pattern = dice.pick(&["a%", "%a", "a_", "ab", "x%1", "%", "d1%", "[ab]%", "a%c"]);
            format!("{path} {}LIKE \"{pattern}\"", if dice.one_in(4) { "NOT " } else { "" })
        }
        12 => format!("IS_DEFINED({path})"),
        13 => {
            let function = dice.pick(&[
                "IS_NULL",
                "IS_BOOL",
                "IS_NUMBER",
                "IS_STRING",
                "IS_ARRAY",
                "IS_OBJECT",
                "IS_PRIMITIVE",
            ]);
            format!("{function}({path})")
        }
        14 => format!("ARRAY_CONTAINS({}, {})", dice.pick(&["c.tags", "c.a", "c.kids"]), literal(dice)),
        15 => format!("ARRAY_CONTAINS([{}, {}], {path})", value(dice, 1), value(dice, 0)),
        16 => {
            let test = match dice.below(4) {
                0 => "k.x = k.y".to_owned(),
                1 => format!("k.x > {}", value(dice, 0)),
                2 => format!("k.x = {}", value(dice, 0)),
                _ => "k.y = 1".to_owned(),
            };
            format!("EXISTS(SELECT VALUE 1 FROM k IN c.kids WHERE {test})")
        }
        17 => {
            let function = dice.pick(&["CONTAINS", "ENDSWITH", "STRINGEQUALS"]);
            format!("{function}({path}, {})", text_literal(dice))
        }
        18 => dice.pick(&["c.a", "true", "c.tags[0] = c.a", "c.n + 1 = 3", "c.n > c.u", "1 = 2"]).to_string(),
        19 | 20 => format!("NOT ({})", predicate(dice, depth - 1)),
        // What names single items.
        24 => {
            let ids: Vec<String> = (0..=dice.below(4)).map(|_| format!("\"d{}\"", dice.below(30))).collect();
            format!("c.id IN ({})", ids.join(", "))
        }
        25 => {
            let item = |dice: &mut Dice| {
                let key = if dice.one_in(6) { "null".to_owned() } else { format!("\"k{}\"", dice.below(5)) };
                format!("(c.id = \"d{}\" AND c.pk = {key})", dice.below(30))
            };
            let items: Vec<String> = (0..=dice.below(9)).map(|_| item(dice)).collect();
            format!("({})", items.join(" OR "))
        }
        21..=23 => format!("({} AND {})", predicate(dice, depth - 1), predicate(dice, depth - 1)),
        _ => format!("({} OR {})", predicate(dice, depth - 1), predicate(dice, depth - 1)),
    }
}

/// A query, and how its rows are to be compared.
pub struct Case {
    pub text: String,
    pub ordered: bool,
    /// Rows may be any of those without the bound.
    pub bounded: Option<(String, usize, usize)>,
}

/// A query whose rows one property decides.
fn covered(dice: &mut Dice) -> String {
    let path = *dice.pick(&PATHS);
    let filter = match dice.below(8) {
        0 => format!(" WHERE {path} = {}", literal(dice)),
        1 => format!(" WHERE {path} {} {}", dice.pick(&["<", "<=", ">", ">=", "!="]), literal(dice)),
        2 => format!(" WHERE {path} IN ({}, {}) OR {path} = 1", literal(dice), literal(dice)),
        3 => format!(" WHERE LENGTH({path}) > 1 OR {path} > 1"),
        4 => format!(" WHERE NOT ({path} = {})", literal(dice)),
        5 => format!(" WHERE IS_DEFINED({path}) AND STARTSWITH({path}, {})", text_literal(dice)),
        _ => String::new(),
    };
    let sum = dice.pick(&["SUM(c.n)", "AVG(c.u)", "COUNTIF(c.n = 1)", "MAX(c.u)"]);
    match dice.below(5) {
        0 => format!("SELECT {path} AS k, COUNT(1) AS n, MAX({path}) AS most FROM c{filter} GROUP BY {path}"),
        1 => format!("SELECT COUNT({path}) AS n, MIN({path}) AS least FROM c{filter}"),
        2 => format!("SELECT DISTINCT VALUE {path} FROM c{filter}"),
        3 => format!("SELECT COUNT(1) AS n, {sum} AS result FROM c"),
        _ => format!(
            "SELECT IS_NUMBER({path}) AS k, COUNT(1) AS n FROM c{filter} GROUP BY IS_NUMBER({path}) OFFSET 1 LIMIT 3"
        ),
    }
}

pub fn query(dice: &mut Dice, policy: usize) -> Case {
    let mut filter = if dice.one_in(8) { String::new() } else { format!(" WHERE {}", predicate(dice, 2)) };
    // What composite indexes are for: equality in front, then perhaps a range.
    if dice.one_in(4) {
        let (first, second) = *dice.pick(&[("c.a", "c.n"), ("c.n", "c.b"), ("c.b", "c.a"), ("c.n", "c.u")]);
        let operator = dice.pick(&["=", "<", "<=", ">", ">="]);
        filter = format!(" WHERE {first} = {} AND {second} {operator} {}", value(dice, 0), value(dice, 0));
        if dice.one_in(3) {
            filter = format!("{filter} AND {}", predicate(dice, 1));
        }
    }
    let plain = |text: String| Case { text, ordered: false, bounded: None };
    match dice.below(23) {
        20.. => plain(covered(dice)),
        0..=4 => plain(format!("SELECT VALUE c.id FROM c{filter}")),
        5 => plain(format!("SELECT c.id, t FROM c JOIN t IN c.tags{filter}")),
        6 => plain(format!(
            "SELECT VALUE x.x FROM x IN c.kids{}",
            filter.replace("c.", "x.").replace("c[", "x[")
        )),
        7 => plain(format!("SELECT DISTINCT VALUE {} FROM c{filter}", dice.pick(&["c.a", "c.n", "c.b"]))),
        8 => plain(format!("SELECT c.n, COUNT(1) AS count, MAX(c.a) AS most FROM c{filter} GROUP BY c.n")),
        9 => plain(format!("SELECT VALUE COUNT(1) FROM c{filter}")),
        10 => plain(format!("SELECT VALUE [{{\"item\": COUNT(1)}}] FROM c{filter}")),
        11 | 12 => {
            let path = dice.pick(&PATHS);
            let aggregate = dice.pick(&["MIN", "MAX", "COUNT"]);
            plain(format!("SELECT VALUE {aggregate}({path}) FROM c{filter}"))
        }
        13 => {
            let name = if dice.one_in(2) { "min" } else { "max" };
            let (path, call) = (dice.pick(&["c.a", "c.n", "c.u"]), name.to_uppercase());
            plain(format!(
                "SELECT VALUE [{{\"item\": {call}({path}), \"item2\": {{\"{name}\": {call}({path}), \"count\": COUNT({path})}}}}] FROM c{filter}"
            ))
        }
        14 => {
            let count = dice.below(9) as usize;
            let whole = format!("SELECT VALUE c.id FROM c{filter}");
            let text = if dice.one_in(2) {
                format!("SELECT TOP {count} VALUE c.id FROM c{filter}")
            } else {
                format!("{whole} OFFSET 2 LIMIT {count}")
            };
            let skip = if text.contains("OFFSET") { 2 } else { 0 };
            Case { text, ordered: false, bounded: Some((whole, skip, count)) }
        }
        _ => {
            let order = if dice.one_in(3) { composite_order(dice, policy) } else { None };
            let order = order.unwrap_or_else(|| {
                let path = dice.pick(&sortable(policy)).to_string();
                format!("{path} {}", dice.pick(&["ASC", "DESC"]))
            });
            let limit = match dice.below(3) {
                0 => format!(" OFFSET {} LIMIT {}", dice.below(4), dice.below(9)),
                _ => String::new(),
            };
            let top = if limit.is_empty() && dice.one_in(3) {
                format!("TOP {} ", dice.below(9))
            } else {
                String::new()
            };
            let select = *dice.pick(&[
                "VALUE c.id",
                "c.id, c.a",
                "c._rid, [{\"item\": c.a}] AS orderByItems",
                "VALUE c.a",
            ]);
            let text = format!("SELECT {top}{select} FROM c{filter} ORDER BY {order}{limit}");
            Case { text, ordered: true, bounded: None }
        }
    }
}

/// Paths that queries may be sorted by under each policy.
fn sortable(policy: usize) -> Vec<&'static str> {
    match policy {
        0 | 1 => vec![
            "c.a",
            "c.b",
            "c.n",
            "c.u",
            "c.a.x",
            "c.id",
            "c._ts",
            "c[\"a/b\"]",
            "c.a.b",
            "c.none",
            "c.tags[0]",
        ],
        2 => vec!["c.a", "c.n", "c.id", "c._ts"],
        3 => vec!["c.b", "c.n", "c.u", "c.c"],
        4 => vec!["c.b", "c.u", "c.b.y"],
        5 => vec!["c.b", "c.a.x", "c.n"],
        6 => vec!["c.id"],
        _ => vec!["c[\"a/b\"]", "c.a.b", "c.id"],
    }
}

fn composite_order(dice: &mut Dice, policy: usize) -> Option<String> {
    let orders: &[&str] = match policy {
        1 => &[
            "c.a, c.n",
            "c.a DESC, c.n DESC",
            "c.n DESC, c.b",
            "c.n, c.b DESC",
            "c.b, c.a, c.u DESC",
            "c.b DESC, c.a DESC, c.u",
        ],
        2 => &["c.a DESC, c.n", "c.a, c.n DESC"],
        _ => return None,
    };
    Some((*dice.pick(orders)).to_owned())
}

/// What the language gives over all documents.
pub fn in_memory(text: &str, documents: &[(Value, u64)]) -> Result<Vec<Value>, String> {
    let query = check::parse(text).map_err(|errors| format!("{errors:?}"))?;
    let policies = Policies::default();
    let settings = Settings { parameters: &[], computed: &[], policies: &policies };
    let program = Program::compile(&query, settings).map(Arc::new).map_err(|errors| format!("{errors:?}"))?;
    let random = Random::new(1);
    let context = Context::new(0, &random, &policies);
    let mut pipeline = Pipeline::new(program, Options::default());
    for (document, ordinal) in documents {
        pipeline
            .feed(Row { document, ordinal: *ordinal, text_bytes: 0 }, &context)
            .map_err(|error| error.to_string())?;
    }
    pipeline.finish(&context).map_err(|error| error.to_string())?;
    Ok(pipeline.take().into_iter().map(|output| output.value).collect())
}

/// All documents with their ordinals, as a scan sees them.
pub async fn documents(world: &World, scope: &FeedScope) -> Vec<(Value, u64)> {
    let found = world.feed(scope, 1000).await.unwrap();
    let ordinal = |document: &Value| {
        let rid = document.get("_rid").unwrap().as_str().unwrap();
        orrery_model::rid::ItemRid::parse(rid).unwrap().ordinal()
    };
    found.into_iter().map(|document| (document.clone(), ordinal(&document))).collect()
}

async fn check_case(
    world: &World,
    case: &Case,
    scope: &FeedScope,
    documents: &[(Value, u64)],
    about: &str,
) -> Result<(), String> {
    let about = format!("{about}\n  {}", case.text);
    let expected = in_memory(&case.text, documents).unwrap_or_else(|error| panic!("{about}\n  {error}"));
    let whole =
        case.bounded.as_ref().map(|(text, skip, count)| (in_memory(text, documents).unwrap(), *skip, *count));
    for (page_size, without_index) in [(-1, true), (-1, false), (1, false), (3, false), (2, true), (7, false)]
    {
        let way = Way { scope: scope.clone(), page_size, without_index };
        let rows = run::rows(world, CONTAINER, &request(&case.text), &way)
            .await
            .map_err(|error| format!("{about}\n  {way:?}\n  {error}"))?;
        let same = match &whole {
            Some((whole, skip, count)) => {
                let texts: Vec<String> = whole.iter().map(run::canonical).collect();
                let mut own: Vec<String> = rows.iter().map(run::canonical).collect();
                own.sort();
                let before = own.len();
                own.dedup();
                own.len() == before
                    && before == (*count).min(whole.len().saturating_sub(*skip))
                    && own.iter().all(|row| texts.contains(row))
            }
            None if case.ordered => rows == expected,
            None => same_multiset(&rows, &expected),
        };
        if !same {
            let (rows, expected) = (Value::from(rows).to_json(), Value::from(expected).to_json());
            return Err(format!("{about}\n  {way:?}\n  gave     {rows}\n  expected {expected}"));
        }
    }
    Ok(())
}

async fn check_seed(seed: u64, queries: u64, engine: Engine, failures: &mut Vec<String>) {
    let mut dice = Dice::new(seed);
    let policy = usize::try_from(dice.below(POLICIES.len() as u64)).unwrap();
    let world = World::with_partitions(engine, 4).await;
    world.create_container(&format!("{BY_PK},\"indexingPolicy\":{}", POLICIES[policy])).await;
    for number in 0..10 + dice.below(50) {
        world.create(&document(&mut dice, number)).await;
        if dice.one_in(5) {
            world.env.advance_seconds(1);
        }
    }
    let mut scopes = vec![(everything(), documents(&world, &everything()).await)];
    for name in ["[\"k1\"]", "[\"k2\"]", "[null]", "[{}]"] {
        let scope = FeedScope { partition_key: Some(key(name)), ..FeedScope::default() };
        scopes.push((scope.clone(), documents(&world, &scope).await));
    }
    let ranges: Vec<u32> = {
        let catalog = world.database.catalog();
        let container = catalog.container(DATABASE, CONTAINER).unwrap();
        container.partitions.iter().map(|partition| partition.range_id).collect()
    };
    for range in ranges {
        let scope = FeedScope { range_id: Some(range), ..FeedScope::default() };
        scopes.push((scope.clone(), documents(&world, &scope).await));
    }
    for _ in 0..queries {
        let mut case = query(&mut dice, policy);
        while policy == 6 && case.ordered {
            case = query(&mut dice, 0);
        }
        let (scope, documents) = if dice.one_in(2) { &scopes[0] } else { dice.pick(&scopes) };
        let about = format!("seed {seed}, policy {policy}");
        failures.extend(check_case(&world, &case, scope, documents, &about).await.err());
    }
}

#[tokio::test]
async fn the_index_returns_the_same_rows_as_a_scan() {
    let rounds = std::env::var("ORRERY_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    let mut failures = Vec::new();
    for seed in 0..rounds {
        check_seed(seed, 30, Engine::Memory, &mut failures).await;
    }
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures[..failures.len().min(10)].join("\n")
    );
}

#[tokio::test]
async fn the_index_returns_the_same_rows_as_a_scan_on_disk() {
    let mut failures = Vec::new();
    for seed in 1000..1003 {
        check_seed(seed, 20, Engine::Embedded, &mut failures).await;
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}
