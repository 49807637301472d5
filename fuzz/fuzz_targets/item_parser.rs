//! Item bodies: the parser never panics, and what it accepts prints to text that reads back the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_model::value::parse;

fuzz_target!(|text: &[u8]| {
    if let Ok(value) = parse(text) {
        let printed = value.to_json();
        let again = parse(printed.as_bytes()).expect("what we print can be read");
        assert_eq!(value, again);
        assert_eq!(again.to_json(), printed);
    }
});
