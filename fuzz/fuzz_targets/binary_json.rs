//! Binary JSON bodies: the decoder never panics, keeps its limit, and what it writes is JSON; what we encode
//! decodes to the same value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_gateway::wire::binary_json::{decode, encode};
use orrery_model::value::{ParseError, parse};

const TEXT_BYTES_MAX: usize = 1 << 16;

fuzz_target!(|buffer: &[u8]| {
    let Ok(text) = decode(buffer, TEXT_BYTES_MAX) else { return };
    assert!(text.len() <= TEXT_BYTES_MAX);
    match parse(text.as_bytes()) {
        Ok(value) => {
            let decoded = decode(&encode(&value), TEXT_BYTES_MAX * 8).expect("our own buffer");
            assert_eq!(parse(decoded.as_bytes()).expect("our own text"), value);
        }
        // Items may nest less deeply than buffers.
        Err(ParseError::TooDeep) => {}
        Err(error) => panic!("{error}: {text}"),
    }
});
