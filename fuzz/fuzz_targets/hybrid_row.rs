//! HybridRow batch bodies: the reader never panics and keeps to its limit. Checksums would stop nearly every
//! mutation, so the input is also read as the payload of a well-formed record.

#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_gateway::wire::hybrid_row::decode_batch;

const ROWS_MAX: usize = 100;

fuzz_target!(|input: &[u8]| {
    if let Ok(rows) = decode_batch(input, ROWS_MAX) {
        assert!(rows.len() <= ROWS_MAX);
    }
    let mut stream = vec![0x81, 0xF0, 0xD8, 0xFF, 0x7F, 1, 10, 0, 0, 0, 0x81, 0xF1, 0xD8, 0xFF, 0x7F];
    stream.extend(u32::try_from(input.len()).expect("inputs are short").to_le_bytes());
    stream.extend(crc32fast::hash(input).to_le_bytes());
    stream.extend(input);
    if let Ok(rows) = decode_batch(&stream, ROWS_MAX) {
        assert_eq!(rows.len(), 1);
    }
});
