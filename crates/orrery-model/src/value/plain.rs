//! Extracts single members from canonical JSON text: no spaces, no duplicate names.
//!
//! Such a text need not be read to its end, and everything before a requested member is skipped by looking only for
//! quotes and brackets.

use memchr::memchr2;

use super::{Value, parse};

/// The members with these names, as far as the text has them. `None` if this reader cannot process the text, which is
/// not a validation.
pub(super) fn members<S: AsRef<str>>(text: &[u8], names: &[S]) -> Option<Vec<(Box<str>, Value)>> {
    let mut members = Vec::with_capacity(names.len());
    if *text.first()? != b'{' {
        return None;
    }
    let mut at = 1;
    // Names are unique in such a text: once all have been found, the rest need not be read.
    while members.len() < names.len() {
        if *text.get(at)? == b'}' {
            break;
        }
        let name_end = string_end(text, at)?;
        let name = &text[at + 1..name_end - 1];
        if *text.get(name_end)? != b':' {
            return None;
        }
        let (start, end) = (name_end + 1, value_end(text, name_end + 1)?);
        // An escaped name may equal the requested one.
        if name.contains(&b'\\') {
            return None;
        }
        if let Some(wanted) = names.iter().find(|wanted| wanted.as_ref().as_bytes() == name) {
            members.push((wanted.as_ref().into(), value(&text[start..end])?));
        }
        at = match *text.get(end)? {
            b',' => end + 1,
            b'}' => end,
            _ => return None,
        };
    }
    Some(members)
}

/// The value that is all of this text.
fn value(text: &[u8]) -> Option<Value> {
    match text {
        // Strings without escapes are copied; everything else goes through the parser.
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => {
            std::str::from_utf8(inner).ok().map(|text| Value::String(text.into()))
        }
        text => parse(text).ok(),
    }
}

/// The end of the value that starts here.
fn value_end(text: &[u8], start: usize) -> Option<usize> {
    match *text.get(start)? {
        b'"' => string_end(text, start),
        b'{' | b'[' => nested_end(text, start),
        // A number or a word ends where its member does.
        _ => text[start..].iter().position(|byte| matches!(byte, b',' | b'}')).map(|length| start + length),
    }
}

fn nested_end(text: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match *text.get(at)? {
            b'"' => {
                at = string_end(text, at)?;
                continue;
            }
            // Which bracket closes which is not checked: the text was valid when it was written.
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => return Some(at + 1),
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

/// Where the string whose opening quote stands here ends, behind its closing one.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    if *text.get(start)? != b'"' {
        return None;
    }
    let mut at = start + 1;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        match text[at] {
            b'"' => return Some(at + 1),
            // The byte after a backslash belongs to it, whatever it means.
            _ => at += 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Object, parse_members};
    use super::*;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i32>().prop_map(|number| Value::from(i64::from(number))),
            any::<f64>().prop_filter("JSON has no others", |number| number.is_finite()).prop_map(Value::from),
            r#"[a-c"\\\[\]{},:é\n]{0,8}"#.prop_map(|text| Value::String(text.into())),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec((any_name(), inner), 0..4)
                    .prop_map(|members| Value::Object(Object::from_members(members))),
            ]
        })
    }

    fn any_name() -> impl Strategy<Value = Box<str>> {
        r#"[a-d"é]{0,2}"#.prop_map(String::into_boxed_str)
    }

    proptest! {
        /// Skipping finds the same members as parsing everything.
        #[test]
        fn members_are_those_of_the_whole(
            members in prop::collection::vec((any_name(), any_value()), 0..6),
            names in prop::collection::btree_set(any_name(), 0..4),
        ) {
            let names: Vec<Box<str>> = names.into_iter().collect();
            let text = Value::Object(Object::from_members(members)).to_json();
            if let Some(found) = super::members(text.as_bytes(), &names) {
                let found = Value::Object(Object::from_members(found));
                prop_assert_eq!(found, parse_members(text.as_bytes(), &names).unwrap());
            } else {
                prop_assert!(text.contains('\\'));
            }
        }

        /// Reading arbitrary bytes terminates.
        #[test]
        fn other_texts_are_no_harm(text in r#"[{}\[\]",:\\a1]{0,24}"#) {
            super::members(text.as_bytes(), &["a", "1"]);
        }
    }

    #[test]
    fn nothing_behind_the_last_wanted_member_is_read() {
        let text = br#"{"a":[1,{"b":"]}\""}],"b":"x","c":-1.5,"d":..."#;
        let found = members(text, &["b", "c"]).unwrap();
        assert_eq!(found, [("b".into(), Value::from("x")), ("c".into(), Value::from(-1.5))]);
        assert_eq!(members(text, &["b", "e"]), None);
        assert_eq!(members::<&str>(text, &[]).unwrap(), []);
    }
}
