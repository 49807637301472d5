use orrery_model::value::parse;

use super::*;

const TEXT_MAX: usize = 2 << 20;

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn check(hex: &str, expected: &str) {
    assert_eq!(decode(&unhex(hex), TEXT_MAX).as_deref(), Ok(expected), "{hex}");
}

fn refuse(hex: &str, expected: BinaryJsonError) {
    assert_eq!(decode(&unhex(hex), TEXT_MAX), Err(expected), "{hex}");
}

fn vectors() -> Vec<(String, Vec<u8>, serde_json::Value)> {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/data/binary-json.json")).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 61);
    let case = |case: &serde_json::Value| {
        let binary = unhex(case["binary"].as_str().unwrap());
        (case["name"].as_str().unwrap().to_owned(), binary, case["json"].clone())
    };
    cases.iter().map(case).collect()
}

#[test]
fn the_vectors_decode_to_their_json() {
    for (name, binary, json) in vectors() {
        let text = decode(&binary, TEXT_MAX).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(parse(text.as_bytes()).unwrap(), parse(json.to_string().as_bytes()).unwrap(), "{name}");
    }
}

#[test]
fn every_shortened_vector_is_refused() {
    for (name, binary, _) in vectors() {
        for length in 0..binary.len() {
            assert!(decode(&binary[..length], TEXT_MAX).is_err(), "{name} cut to {length}");
        }
        let mut longer = binary.clone();
        longer.push(0);
        assert_eq!(decode(&longer, TEXT_MAX), Err(BinaryJsonError::Trailing), "{name}");
    }
}

#[test]
fn changed_vectors_never_panic() {
    for (_, binary, _) in vectors() {
        for at in 0..binary.len() {
            for byte in 0..=255 {
                let mut changed = binary.clone();
                changed[at] = byte;
                // Whatever still decodes must be JSON text.
                if let Ok(text) = decode(&changed, TEXT_MAX) {
                    assert!(parse(text.as_bytes()).is_ok(), "{text}");
                }
            }
        }
    }
}

/// Markers of the format table that the vectors leave out, worked out by hand from the table.
#[test]
fn the_other_markers_decode() {
    check("80D2", "true");
    check("80C7FFFFFFFFFFFFFFFF", "18446744073709551615");
    check("80C8FF", "255");
    check("80C9FFFF", "-1");
    check("80CA00000080", "-2147483648");
    check("80CD0000C03F", "1.5");
    check("80D7FF", "255");
    check("80D8FF", "-1");
    check("80D900FF", "-256");
    check("80DBFFFFFFFFFFFFFFFF", "-1");
    check("80DCFFFFFFFF", "4294967295");
    check("80CC0000000000000080", "-0");
    check("80CC0000000000004540", "42");
}

#[test]
fn strings_in_all_widths() {
    check("80C202000000C3A9", "\"é\"");
    check("8083220A5C", r#""\"\n\\""#);
    // Two groups, one missing byte: padded, then with the padding left out (complement of 1 is FE).
    check("80710201666F6F6261", "\"Zm9vYmE=\"");
    check("807102FE666F6F6261", "\"Zm9vYmE\"");
    check("80720200FD666F6F62", "\"Zm9vYg\"");
    check("80730102FB", "\"-w==\"");
    check("80740100FEFBFF", "\"-_8\"");
    // Six bits: 'A' + 0, 1, 63 is ASCII 128: too far. '@' + 63 is 127, the last one.
    check("807D0240C00F", "\"@\u{7f}\"");
    refuse("807D0141FF", BinaryJsonError::Text);
    refuse("80C1020068FF", BinaryJsonError::Text);
    refuse("807101037A7A7A", BinaryJsonError::Text);
    refuse("80710001", BinaryJsonError::Text);
}

#[test]
fn containers_in_all_widths() {
    check("80E1E1E100", "[[[0]]]");
    check("80E6030003000001D0", "[0,1,null]");
    check("80E703000000030000000001D0", "[0,1,null]");
    check("80EB04002C003B01", r#"{"id":0,"type":1}"#);
    check("80EA042C003B01", r#"{"id":0,"type":1}"#);
    check("80EE040002002C003B01", r#"{"id":0,"type":1}"#);
    check("80E50000", "[]");
    check("80ED0000", "{}");
    check("80E200", "[]");
    check("80F1DA0100FFFFFFFF", "[-1]");
    check("80F2F0D70203010203040506", "[[1,2],[3,4],[5,6]]");
    check("80F2F0D70002", "[[],[]]");
}

#[test]
fn wrong_buffers_are_refused() {
    refuse("", BinaryJsonError::Preamble);
    refuse("7B7D", BinaryJsonError::Preamble);
    refuse("80", BinaryJsonError::Truncated);
    refuse("80D0D0", BinaryJsonError::Trailing);
    for marker in [0x40, 0x5F, 0x60, 0x67, 0xCF] {
        refuse(&format!("80{marker:02X}0000"), BinaryJsonError::Unsupported(marker));
    }
    for marker in [0x68, 0x6F, 0x70, 0xD4, 0xD5, 0xD6, 0xF4, 0xFF] {
        refuse(&format!("80{marker:02X}0000"), BinaryJsonError::Marker(marker));
    }
    // The length of a container is too long, too short, or disagrees with the count.
    refuse("80E20500", BinaryJsonError::Truncated);
    refuse("80E201CB0000000000000000", BinaryJsonError::Length);
    refuse("80E502010001", BinaryJsonError::Length);
    refuse("80E501020001", BinaryJsonError::Length);
    refuse("80E1", BinaryJsonError::Truncated);
    refuse("80EA012C", BinaryJsonError::Length);
    // A name must be a string.
    refuse("80E90000", BinaryJsonError::Marker(0));
    refuse("80E9D300000000000000000000000000000000D0", BinaryJsonError::Marker(0xD3));
    // References: forward, to themselves, to the preamble, to a number, to a reference, into a later string.
    refuse("80E205C305826869", BinaryJsonError::Reference);
    refuse("80E202C303", BinaryJsonError::Reference);
    refuse("80E202C300", BinaryJsonError::Reference);
    refuse("80E20300C303", BinaryJsonError::Reference);
    refuse("80E207826869C303C306", BinaryJsonError::Reference);
    // Numbers that JSON cannot hold.
    refuse("80CC000000000000F07F", BinaryJsonError::NotFinite);
    refuse("80CD0000C07F", BinaryJsonError::NotFinite);
    // Packed numbers of a type that is not one.
    refuse("80F02C00", BinaryJsonError::Marker(0x2C));
    refuse("80F0CF00", BinaryJsonError::Unsupported(0xCF));
    refuse("80F2F1DA0000", BinaryJsonError::Marker(0xF1));
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| {
        let mut buffer = vec![PREAMBLE];
        buffer.extend(std::iter::repeat_n(0xE1, levels - 1));
        buffer.push(0xE0);
        buffer
    };
    assert!(decode(&nested(NESTING_MAX), TEXT_MAX).is_ok());
    assert_eq!(decode(&nested(NESTING_MAX + 1), TEXT_MAX), Err(BinaryJsonError::TooDeep));
    assert_eq!(decode(&nested(1_000_000), TEXT_MAX), Err(BinaryJsonError::TooDeep));
}

#[test]
fn references_cannot_blow_up_the_text() {
    // A string of 60,000 characters and 20,000 references to it would be 1.2 GB of text.
    let mut content = vec![0xC1, 0x60, 0xEA];
    content.extend(std::iter::repeat_n(b'x', 60_000));
    for _ in 0..20_000 {
        content.extend([0xC3, 6]);
    }
    let mut buffer = vec![PREAMBLE, 0xE4];
    buffer.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
    buffer.extend(content);
    assert_eq!(decode(&buffer, TEXT_MAX), Err(BinaryJsonError::TooLarge(TEXT_MAX)));
}

#[test]
fn the_limit_counts_bytes_of_text() {
    let buffer = unhex("80E205826869C303");
    assert_eq!(decode(&buffer, 11).as_deref(), Ok(r#"["hi","hi"]"#));
    assert_eq!(decode(&buffer, 10), Err(BinaryJsonError::TooLarge(10)));
}

#[test]
fn encoding_is_undone_by_decoding() {
    let long =
        format!(r#"{{"id":"x","text":"{}","list":[{}0]}}"#, "é".repeat(40_000), "1234567,".repeat(300));
    for text in [
        "null",
        "[]",
        "{}",
        "[0,31,32,255,256,-1,-32768,32767,32768,-2147483649,9007199254740993,1.5,-2.25e-9,1e300]",
        r#"{"id":"a","_rid":"b","type":"Point","coordinates":[1.25,-3],"name":null,"nested":{"deep":[[[true]],{}]}}"#,
        r#""sixty-three characters long, which is the longest that fits! 123""#,
        &long,
    ] {
        let value = parse(text.as_bytes()).unwrap();
        let decoded = decode(&encode(&value), TEXT_MAX).unwrap();
        assert_eq!(parse(decoded.as_bytes()).unwrap(), value, "{text}");
        assert_eq!(decoded, value.to_json());
    }
}

#[test]
fn the_encoder_writes_what_clients_write() {
    // From the list of what the Rust client emits: the marker and widths follow the table.
    let check =
        |text: &str, hex: &str| assert_eq!(encode(&parse(text.as_bytes()).unwrap()), unhex(hex), "{text}");
    check("[0,1,null]", "80E503030001D0");
    check(r#"{"id":0,"type":1}"#, "80ED04022C003B01");
    check("31", "801F");
    check("200", "80C8C8");
    check("\"hi\"", "80826869");
    check("\"\"", "8080");
    check("3.5", "80CC0000000000000C40");
    check("-5000000000", "80CB000EFAD5FEFFFFFF");
}
