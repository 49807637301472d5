use super::*;
use crate::value;

fn json(text: &str) -> Value {
    value::parse(text.as_bytes()).unwrap()
}

fn patch(item: &str, operations: &str) -> Result<String> {
    let mut item = json(item);
    Patch::parse(&json(operations))?.apply(&mut item)?;
    Ok(item.to_json())
}

#[test]
fn operations_do_what_the_documentation_says() {
    for (item, operations, expected) in [
        // The example of the partial update article.
        (
            r#"{"id":"e","name":"R-410 Road Bicycle","price":455.95,"inventory":{"quantity":15},"used":false}"#,
            r#"[{"op":"add","path":"/color","value":"silver"},{"op":"remove","path":"/used"},
                {"op":"set","path":"/price","value":355.45},{"op":"incr","path":"/inventory/quantity","value":10}]"#,
            r#"{"id":"e","name":"R-410 Road Bicycle","price":355.45,"inventory":{"quantity":25},"color":"silver"}"#,
        ),
        (r#"{"a":1}"#, r#"[{"op":"add","path":"/a","value":null}]"#, r#"{"a":null}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"add","path":"/a/0","value":0}]"#, r#"{"a":[0,1,2]}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"add","path":"/a/2","value":3}]"#, r#"{"a":[1,2,3]}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"add","path":"/a/-","value":3}]"#, r#"{"a":[1,2,3]}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"set","path":"/a/0","value":9}]"#, r#"{"a":[9,2]}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"set","path":"/a/-","value":9}]"#, r#"{"a":[1,2,9]}"#),
        (r#"{"a":{}}"#, r#"[{"op":"set","path":"/a/b","value":{"c":1}}]"#, r#"{"a":{"b":{"c":1}}}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"replace","path":"/a/1","value":5}]"#, r#"{"a":[1,5]}"#),
        (r#"{"a":[1,2]}"#, r#"[{"op":"remove","path":"/a/0"}]"#, r#"{"a":[2]}"#),
        (r#"{"0":1}"#, r#"[{"op":"remove","path":"/0"}]"#, "{}"),
        (r#"{"a":1}"#, r#"[{"op":"incr","path":"/a","value":-3}]"#, r#"{"a":-2}"#),
        (r#"{"a":1}"#, r#"[{"op":"incr","path":"/a","value":0.5}]"#, r#"{"a":1.5}"#),
        ("{}", r#"[{"op":"incr","path":"/a","value":5}]"#, r#"{"a":5}"#),
        (r#"{"a":[1]}"#, r#"[{"op":"incr","path":"/a/0","value":5}]"#, r#"{"a":[6]}"#),
        (r#"{"a":{"b":1},"c":[]}"#, r#"[{"op":"move","from":"/a/b","path":"/c/0"}]"#, r#"{"a":{},"c":[1]}"#),
        (r#"{"a":1,"b":2}"#, r#"[{"op":"move","from":"/a","path":"/b"}]"#, r#"{"b":1}"#),
        (r#"{"a/b":{"c~d":1}}"#, r#"[{"op":"set","path":"/a~1b/c~0d","value":2}]"#, r#"{"a/b":{"c~d":2}}"#),
        (
            r#"{"a":1}"#,
            r#"[{"op":"add","path":"/b","value":{}},{"op":"add","path":"/b/c","value":1}]"#,
            r#"{"a":1,"b":{"c":1}}"#,
        ),
    ] {
        assert_eq!(patch(item, operations).unwrap(), expected, "{operations}");
    }
}

#[test]
fn impossible_operations_are_refused() {
    let item = r#"{"a":{"b":[1]},"s":"x","n":1.7e308}"#;
    for (operations, fragment) in [
        // The .NET suite matches this sentence.
        (
            r#"[{"op":"add","path":"/nonExistentParent/Child","value":"bar"}]"#,
            "For Operation(1): Add Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'nonExistentParent'. Learn more: https://aka.ms/cosmosdbpatchdocs",
        ),
        (r#"[{"op":"set","path":"/a/c/d","value":1}]"#, "no path found beyond: 'c'"),
        (r#"[{"op":"set","path":"/s/d","value":1}]"#, "no path found beyond: 's'"),
        (r#"[{"op":"incr","path":"/x/y","value":1}]"#, "no path found beyond: 'x'"),
        (
            r#"[{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]"#,
            "For Operation(2): Node(/a) to be removed is absent",
        ),
        (r#"[{"op":"replace","path":"/z","value":1}]"#, "Node(/z) to be replaced is absent"),
        (r#"[{"op":"add","path":"/a/b/2","value":1}]"#, "Index(2) to operate on is out of array bounds"),
        (r#"[{"op":"add","path":"/a/b/x","value":1}]"#, "Index(x)"),
        (r#"[{"op":"add","path":"/a/b/+0","value":1}]"#, "Index(+0)"),
        (r#"[{"op":"set","path":"/a/b/1","value":1}]"#, "out of array bounds"),
        (r#"[{"op":"replace","path":"/a/b/-","value":1}]"#, "out of array bounds"),
        (r#"[{"op":"remove","path":"/a/b/1"}]"#, "out of array bounds"),
        (r#"[{"op":"incr","path":"/s","value":1}]"#, "Node(/s) is not a number"),
        (r#"[{"op":"incr","path":"/n","value":1.7e308}]"#, "is not a number"),
        (r#"[{"op":"move","from":"/a","path":"/a/b/0"}]"#, "children"),
        (r#"[{"op":"move","from":"/q","path":"/r"}]"#, "to be moved is absent"),
        (r#"[{"op":"move","from":"/s","path":"/r/t"}]"#, "no path found beyond: 'r'"),
    ] {
        let error = patch(item, operations).unwrap_err();
        assert!(error.message.contains(fragment), "{operations}: {error}");
    }
}

#[test]
fn bodies_are_checked() {
    let one = r#"{"op":"remove","path":"/a"}"#;
    let many = |count: usize| format!("[{}]", vec![one; count].join(","));
    assert_eq!(Patch::parse(&json(&many(10))).unwrap().len(), 10);
    assert!(Patch::parse(&json(&many(11))).unwrap_err().message.contains("can't exceed 10"));
    let parsed =
        Patch::parse(&json(&format!(r#"{{"condition":"from c where c.n = 3","operations":[{one}]}}"#)))
            .unwrap();
    assert_eq!(parsed.condition.as_deref(), Some("from c where c.n = 3"));
    for body in [
        "[]",
        "{}",
        "5",
        r#"{"operations":[]}"#,
        r#"{"operations":{},"condition":null}"#,
        r#"{"operations":[{"op":"remove","path":"/a"}],"condition":5}"#,
        "[1]",
        r#"[{"path":"/a"}]"#,
        r#"[{"op":"remove"}]"#,
        r#"[{"op":"remove","path":"a"}]"#,
        r#"[{"op":"remove","path":""}]"#,
        r#"[{"op":"remove","path":"/"}]"#,
        r#"[{"op":"remove","path":"/a//b"}]"#,
        r#"[{"op":"remove","path":"/a~2"}]"#,
        r#"[{"op":"remove","path":"/a~"}]"#,
        r#"[{"op":"copy","path":"/a","from":"/b"}]"#,
        r#"[{"op":"test","path":"/a","value":1}]"#,
        r#"[{"op":"add","path":"/a"}]"#,
        r#"[{"op":"incr","path":"/a","value":"1"}]"#,
        r#"[{"op":"move","path":"/a"}]"#,
    ] {
        let error = Patch::parse(&json(body)).unwrap_err();
        assert!(error.message.starts_with("Invalid patch request"), "{body}: {error}");
    }
}

#[test]
fn names_of_the_item_are_out_of_reach() {
    let partition_key = PartitionKeyDefinition::with_paths(&["/tenant/id", "/user"]).unwrap();
    let computed =
        [ComputedProperty { name: "cp_lower".into(), query: "SELECT VALUE LOWER(c.n) FROM c".into() }];
    let check = |operation: &str| {
        Patch::parse(&json(&format!("[{operation}]"))).unwrap().check_paths(&partition_key, &computed)
    };
    for path in [
        "/id",
        "/_rid",
        "/_self",
        "/_etag/x",
        "/_ts",
        "/_attachments",
        "/tenant",
        "/tenant/id",
        "/user",
        "/cp_lower",
    ] {
        assert!(check(&format!(r#"{{"op":"set","path":"{path}","value":1}}"#)).is_err(), "{path}");
        assert!(check(&format!(r#"{{"op":"move","from":"{path}","path":"/x"}}"#)).is_err(), "{path}");
        assert!(check(&format!(r#"{{"op":"move","from":"/x","path":"{path}"}}"#)).is_err(), "{path}");
    }
    for path in ["/ttl", "/tenant/name", "/a/id", "/users"] {
        assert!(check(&format!(r#"{{"op":"set","path":"{path}","value":1}}"#)).is_ok(), "{path}");
    }
}

#[test]
fn patches_cannot_nest_deeper_than_items() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let add = |path: &str, levels: usize| {
        let operations = format!(r#"[{{"op":"add","path":"{path}","value":{}}}]"#, nested(levels));
        patch(r#"{"a":{"b":{}}}"#, &operations)
    };
    // The request nests the value in an array and an object, the item in two objects.
    assert!(value::parse(add("/a/b", 126).unwrap().as_bytes()).is_ok());
    assert!(add("/a/b/c", 126).unwrap_err().message.contains("nesting"));
}
