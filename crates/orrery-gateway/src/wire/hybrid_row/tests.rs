use super::*;

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn cases(direction: &str) -> Vec<(Vec<serde_json::Value>, Vec<u8>)> {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/data/hybridrow-batch.json")).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 13);
    let of_direction = cases.iter().filter(|case| case["direction"] == direction);
    of_direction
        .map(|case| (case["rows"].as_array().unwrap().clone(), unhex(case["bytes"].as_str().unwrap())))
        .collect()
}

/// The numbers of the SDKs' `OperationType`.
const OPERATIONS: [(i64, RowOperation); 6] = [
    (0, RowOperation::Create),
    (1, RowOperation::Patch),
    (2, RowOperation::Read),
    (4, RowOperation::Delete),
    (5, RowOperation::Replace),
    (20, RowOperation::Upsert),
];

#[test]
fn request_vectors_are_read() {
    for (rows, bytes) in cases("request") {
        assert!(is_hybrid_row(&bytes));
        let decoded = decode_batch(&bytes, 100).unwrap();
        assert_eq!(decoded.len(), rows.len());
        for (row, expected) in decoded.iter().zip(&rows) {
            let text = |name: &str| expected[name].as_str();
            let number = expected["operationType"].as_i64().unwrap();
            let operation = OPERATIONS.iter().find(|(own, _)| *own == number);
            let expected = OperationRow {
                operation: operation.unwrap().1,
                partition_key: text("partitionKey"),
                id: text("id"),
                resource_body: text("resourceBody").map(str::as_bytes),
                indexing_directive: text("indexingDirective"),
                if_match: text("ifMatch"),
                if_none_match: text("ifNoneMatch"),
                time_to_live_seconds: None,
                minimal_return: expected["minimalReturnPreference"].as_bool().unwrap_or(false),
            };
            assert_eq!(*row, expected);
        }
    }
}

#[test]
fn response_vectors_are_written() {
    for (rows, bytes) in cases("response") {
        let results = rows.iter().map(|row| {
            let number = |name: &str| row[name].as_u64().map(|value| u32::try_from(value).unwrap());
            ResultRow {
                status: u16::try_from(number("statusCode").unwrap()).unwrap(),
                substatus: u16::try_from(number("subStatusCode").unwrap_or(0)).unwrap(),
                etag: row["eTag"].as_str(),
                resource_body: row["resourceBody"].as_str().map(str::as_bytes),
                retry_after_ms: number("retryAfterMilliseconds"),
                request_charge: row["requestCharge"].as_f64(),
            }
        });
        assert_eq!(encode_results(results), bytes, "{rows:?}");
    }
}

/// A stream of one record with this payload.
fn stream(payload: &str) -> Vec<u8> {
    let payload = unhex(payload);
    let mut bytes = unhex("81f0d8ff7f010a00000081f1d8ff7f");
    bytes.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    bytes.extend(crc32fast::hash(&payload).to_le_bytes());
    bytes.extend(payload);
    bytes
}

const READ_A: &str = "817054e17f1302000000020000000161";

#[test]
fn sparse_fields_are_read_and_unknown_ones_passed_over() {
    // timeToLiveInSeconds (token 11) as int32 60, ifNoneMatch (10) as text, minimalReturnPreference (12) false.
    let bytes = stream(&format!("{READ_A}070b3c000000140a0122020c"));
    let row = &decode_batch(&bytes, 1).unwrap()[0];
    assert_eq!(
        (row.time_to_live_seconds, row.if_none_match, row.minimal_return),
        (Some(60), Some("\""), false)
    );
    // An undeclared path of two letters has token 12 + 1 + 2, then its name, then its value.
    for value in ["14", "10", "08", "07", "03", "0e"] {
        let payload = match value {
            "14" => "140f6162027878",
            "10" => "100f61620000000000000000",
            "08" => "080f61620000000000000000",
            "07" => "070f616200000000",
            "03" => "030f6162",
            _ => "0e0f6162ff01",
        };
        let bytes = stream(&format!("{READ_A}{payload}030c"));
        assert!(decode_batch(&bytes, 1).unwrap()[0].minimal_return, "{payload}");
    }
}

#[test]
fn wrong_streams_are_refused() {
    let check = |bytes: &[u8], expected: HybridRowError| assert_eq!(decode_batch(bytes, 2), Err(expected));
    check(b"", HybridRowError::Segment);
    check(b"[]", HybridRowError::Segment);
    check(&unhex("81f1d8ff7f"), HybridRowError::Segment);
    check(&unhex("81f0d8ff7f0109000000"), HybridRowError::Segment);
    check(&unhex("81f0d8ff7f000a000000"), HybridRowError::Segment);
    check(&unhex("81f0d8ff7f01ffffffff"), HybridRowError::Truncated);
    assert_eq!(decode_batch(&unhex("81f0d8ff7f010a000000"), 2), Ok(vec![]));

    let mut bytes = stream(READ_A);
    *bytes.last_mut().unwrap() ^= 1;
    check(&bytes, HybridRowError::Checksum);
    check(&stream("817154e17f1302000000020000000161"), HybridRowError::Schema(RESULT_SCHEMA));
    check(&stream("817054e17f1303000000020000000161"), HybridRowError::Operation(3));
    check(&stream("817054e17f1302000000030000000161"), HybridRowError::Resource(3));
    check(&stream("817054e17f1202000000020000000161"), HybridRowError::MissingOperation);
    check(&stream("817054e17f13020000000200000001ff"), HybridRowError::Text);
    check(&stream("817054e17f13020000000200000009"), HybridRowError::Truncated);
    check(&stream(&format!("{READ_A}140b0122")), HybridRowError::FieldType(20));
    check(&stream(&format!("{READ_A}07093c000000")), HybridRowError::FieldType(7));
    check(&stream(&format!("{READ_A}14070122")), HybridRowError::Field);
    check(&stream(&format!("{READ_A}140901221409 0122").replace(' ', "")), HybridRowError::Field);
    check(&stream(&format!("{READ_A}1e0f6162")), HybridRowError::FieldType(0x1e));
    check(&stream(&format!("{READ_A}14ffffffffffffffffff7f")), HybridRowError::Field);

    let mut three = stream(READ_A);
    let record = three[10..].to_vec();
    three.extend_from_slice(&record);
    assert_eq!(decode_batch(&three, 2).unwrap().len(), 2);
    three.extend_from_slice(&record);
    check(&three, HybridRowError::TooMany(2));
}

#[test]
fn shortened_and_changed_streams_never_panic() {
    for (_, bytes) in cases("request") {
        for length in 11..bytes.len() {
            // A cut between two records leaves a shorter batch, which the client's count would show.
            if let Ok(rows) = decode_batch(&bytes[..length], 100) {
                assert!(rows.len() < decode_batch(&bytes, 100).unwrap().len());
            }
        }
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xFF] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                assert!(decode_batch(&changed, 100).is_err() || at < 10, "byte {at}");
            }
        }
    }
}
