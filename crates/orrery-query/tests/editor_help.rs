//! The explorer's editor completes and explains every function of the language, and no other.

use std::collections::BTreeSet;

use orrery_query::functions;

/// Functions that the service plans but does not document have no help either.
fn is_documented(name: &str) -> bool {
    const UNDOCUMENTED: [&str; 5] =
        ["HASH", "REGEXEXTRACT", "REGEXEXTRACTALL", "REGEXREPLACE", "REGEXREPLACEALL"];
    !name.starts_with('_') && !UNDOCUMENTED.contains(&name)
}

#[test]
fn every_function_has_help_in_the_editor() {
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../explorer/src/editor/functions.json"
    ))
    .expect("the list is there");
    let list: Vec<[String; 3]> = serde_json::from_str(&text).expect("names, signatures, help");
    let helped: BTreeSet<&str> = list.iter().map(|[name, ..]| name.as_str()).collect();
    let known: BTreeSet<&str> =
        functions::all().map(|function| function.name).filter(|name| is_documented(name)).collect();
    let missing: Vec<_> = known.difference(&helped).collect();
    assert!(missing.is_empty(), "without help: {missing:?}");
    for [name, signature, help] in &list {
        let is_aggregate = ["AVG", "COUNT", "COUNTIF", "MAX", "MIN", "SUM", "MAKELIST", "MAKESET", "RRF"]
            .contains(&name.as_str());
        assert!(is_aggregate || functions::lookup(name).is_some(), "{name} is no function");
        let spelled = signature.split('(').next().unwrap_or_default();
        assert_eq!(spelled.to_uppercase(), *name, "the signature of {name}");
        assert!(help.ends_with(['.', '…']), "the help of {name}");
    }
}
