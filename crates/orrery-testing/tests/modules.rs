//! The modules of every crate form layers: a graph without cycles, the one that docs/ARCHITECTURE.md draws.
//!
//! The graph is read from the sources: every path that begins with `crate::` or `super::` is an edge from the module that
//! holds it to the module that it names. Names that a crate re-exports at its root count as edges to where they come from.
//! Test modules do not count.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Graph = BTreeMap<String, BTreeSet<String>>;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The text without comments and without its test module.
fn product_code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// All paths that begin with `crate`, `super` or `self`, with braces expanded.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let bytes = code.as_bytes();
    for root in ["crate", "super", "self"] {
        let mut from = 0;
        while let Some(at) = code[from..].find(root).map(|at| at + from) {
            from = at + root.len();
            let starts_word =
                at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || b"_:$".contains(&bytes[at - 1]));
            if starts_word && code[from..].starts_with("::") {
                expand(&code[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Reads one path, or one tree of paths, and answers what follows it.
fn expand<'c>(mut code: &'c str, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'c str {
    let depth = prefix.len();
    loop {
        code = code.trim_start();
        if let Some(inner) = code.strip_prefix('{') {
            code = inner;
            loop {
                code = code.trim_start();
                if let Some(rest) = code.strip_prefix('}') {
                    prefix.truncate(depth);
                    return rest;
                }
                if code.is_empty() {
                    return code;
                }
                code = expand(code, prefix, found);
                code = code.trim_start_matches(|c| c != ',' && c != '}');
                code = code.strip_prefix(',').unwrap_or(code);
            }
        }
        let length = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
        if length == 0 {
            break;
        }
        prefix.push(code[..length].to_owned());
        code = &code[length..];
        match code.strip_prefix("::") {
            Some(rest) if !rest.starts_with('<') => code = rest,
            _ => break,
        }
    }
    found.push(prefix.clone());
    prefix.truncate(depth);
    code
}

/// The path from the crate's root, for a path in this module.
fn absolute(path: &[String], module: &[String]) -> Vec<String> {
    let mut base = match path[0].as_str() {
        "crate" => return path[1..].to_vec(),
        "self" => module.to_vec(),
        _ => module[..module.len().saturating_sub(1)].to_vec(),
    };
    let mut rest = &path[1..];
    while rest.first().is_some_and(|segment| segment == "super") {
        base.pop();
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    base
}

/// The graph of the modules right below `root`, a module of the crate; the crate itself if it is empty.
fn graph(source: &Path, root: &[&str]) -> Graph {
    let mut files = Vec::new();
    sources(&root.iter().fold(source.to_owned(), |path, segment| path.join(segment)), &mut files);
    let depth = root.len() + 1;
    let re_exports = re_exports(source);
    let mut graph = Graph::new();
    let mut edges = Vec::new();
    for file in files {
        let relative = file.strip_prefix(source).unwrap().with_extension("");
        let mut module: Vec<String> =
            relative.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        let last = module.last().unwrap().as_str();
        if last == "mod" || (module.len() == 1 && (last == "lib" || last == "main")) {
            module.pop();
        }
        let is_test = module.iter().any(|segment| segment == "tests");
        if is_test || module.len() < depth {
            continue;
        }
        let name = module[depth - 1].clone();
        graph.entry(name.clone()).or_default();
        for path in paths(&product_code(&fs::read_to_string(&file).unwrap())) {
            let mut target = absolute(&path, &module);
            if let Some(origin) = target.first().and_then(|first| re_exports.get(first)) {
                target.clone_from(origin);
            }
            if target.len() >= depth && target.iter().zip(root).all(|(one, other)| one == other) {
                edges.push((name.clone(), target[depth - 1].clone()));
            }
        }
    }
    for (from, to) in edges {
        if from != to && graph.contains_key(&to) {
            graph.get_mut(&from).unwrap().insert(to);
        }
    }
    graph
}

/// Names at the root of a crate, and where they come from.
fn re_exports(source: &Path) -> BTreeMap<String, Vec<String>> {
    let mut names = BTreeMap::new();
    for root in ["lib.rs", "main.rs"] {
        let code = fs::read_to_string(source.join(root)).map(|text| product_code(&text)).unwrap_or_default();
        for statement in code.split("pub use ").skip(1) {
            let mut found = Vec::new();
            expand(statement, &mut Vec::new(), &mut found);
            for path in found {
                names.insert(path.last().unwrap().clone(), path);
            }
        }
    }
    names
}

/// A cycle, if there is one.
fn cycle(graph: &Graph) -> Option<Vec<String>> {
    fn visit(
        graph: &Graph,
        module: &str,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(at) = path.iter().position(|known| known == module) {
            return Some(path[at..].to_vec());
        }
        if done.contains(module) {
            return None;
        }
        path.push(module.to_owned());
        let found = graph[module].iter().find_map(|next| visit(graph, next, path, done));
        path.pop();
        done.insert(module.to_owned());
        found
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|module| visit(graph, module, &mut Vec::new(), &mut done))
}

fn crates() -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = fs::read_dir(workspace().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path.join("src")))
        .collect();
    found.sort();
    found
}

#[test]
fn no_crate_has_a_cycle_among_its_modules() {
    let mut cycles = Vec::new();
    for (name, source) in crates() {
        if let Some(cycle) = cycle(&graph(&source, &[])) {
            cycles.push(format!("{name}: {}", cycle.join(" → ")));
        }
    }
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

/// The folders whose own modules are layers too.
#[test]
fn the_steps_of_a_query_form_no_cycle() {
    let source = workspace().join("crates/orrery-db/src");
    for root in [&["query"][..], &["query", "plan"], &["query", "fetch"], &["query", "page"]] {
        let graph = graph(&source, root);
        assert!(graph.len() > 2, "{root:?} has modules");
        assert_eq!(cycle(&graph), None, "{root:?}");
    }
}

#[test]
fn the_drawing_of_the_database_is_true() {
    let source = workspace().join("crates/orrery-db/src");
    let lines: Vec<String> = graph(&source, &[])
        .iter()
        .map(|(module, uses)| {
            let uses: Vec<&str> = uses.iter().map(String::as_str).collect();
            format!("{module} → {}", if uses.is_empty() { "nothing".to_owned() } else { uses.join(", ") })
        })
        .collect();
    let document = fs::read_to_string(workspace().join("docs/ARCHITECTURE.md")).unwrap();
    let drawn = document.split("<!-- modules of orrery-db -->").nth(1).expect("the drawing is marked");
    let drawn: Vec<&str> = drawn.lines().map(str::trim).filter(|line| line.contains(" → ")).collect();
    assert_eq!(drawn, lines, "docs/ARCHITECTURE.md should draw:\n{}", lines.join("\n"));
}

#[test]
fn the_reader_of_sources_sees_what_it_should() {
    let code = product_code(
        "use super::{Items, point::{self, decode}};\nuse crate::catalog::Container; // crate::no\n\
         fn f() { crate::layout::keys::item(); }\n#[cfg(test)]\nmod tests { use crate::never; }",
    );
    let module = ["items".to_owned(), "feed".to_owned()];
    let mut found: Vec<String> = paths(&code).iter().map(|path| absolute(path, &module).join("::")).collect();
    found.sort();
    assert_eq!(
        found,
        [
            "catalog::Container",
            "items::Items",
            "items::point::decode",
            "items::point::self",
            "layout::keys::item"
        ]
    );
    let edges = |pairs: &[(&str, &str)]| {
        let mut graph = Graph::new();
        for (from, to) in pairs {
            graph.entry((*to).to_owned()).or_default();
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    };
    assert_eq!(cycle(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert_eq!(
        cycle(&edges(&[("a", "b"), ("b", "c"), ("c", "b")])),
        Some(vec!["b".to_owned(), "c".to_owned()])
    );
}
