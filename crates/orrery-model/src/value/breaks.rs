//! Tabs and line breaks inside strings. JSON requires escapes; the service accepts them unescaped (the .NET client's
//! suite creates items whose ids hold them, `CosmosItemIdEncodingTestsBase`).

/// The text with the tabs and line breaks inside its strings escaped, or none if there are none: the text is then
/// invalid for another reason.
pub fn escape_breaks(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() + 8);
    let (mut in_string, mut is_escaped) = (false, false);
    for &byte in text {
        let escape = match byte {
            b'\t' => Some(b't'),
            b'\n' => Some(b'n'),
            b'\r' => Some(b'r'),
            _ => None,
        };
        match escape {
            // Outside strings they are white space. After a backslash the text is invalid either way, and stays
            // so.
            Some(letter) if in_string && !is_escaped => out.extend_from_slice(&[b'\\', letter]),
            _ => out.push(byte),
        }
        if is_escaped {
            is_escaped = false;
        } else if in_string && byte == b'\\' {
            is_escaped = true;
        } else if byte == b'"' {
            in_string = !in_string;
        }
    }
    (out.len() > text.len()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_are_escaped_inside_strings_only() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(escape_breaks(text.as_bytes()).as_deref(), expected.map(str::as_bytes), "{text:?}");
        };
        check("{\n\t\"id\": \"a\"\r\n}", None);
        check("{\"id\":\"a\tb\rc\nd\"}", Some(r#"{"id":"a\tb\rc\nd"}"#));
        check("{\n\"a\tb\":\"\\\"\n\"}", Some("{\n\"a\\tb\":\"\\\"\\n\"}"));
        // A break after a backslash is not an escape sequence: the text stays invalid.
        check("{\"id\":\"\\\n\"}", None);
    }
}
