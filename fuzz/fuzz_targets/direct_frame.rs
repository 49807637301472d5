//! Frames and tokens of direct mode: reading never panics, never takes more than the frame, and what it makes of a frame is
//! a request with a path and headers, or a refusal. Lengths would stop nearly every mutation, so the input is also read as
//! the tokens of a frame whose length is right; its first two bytes choose the kinds of resource and operation.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use orrery_gateway::direct::{DirectRequest, RequestFrame};

fn read(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some(frame)) = RequestFrame::take(&mut buffer) {
        if let Ok(request) = DirectRequest::parse(&frame)
            && let Ok(parts) = &request.head
        {
            assert!(parts.uri.path().starts_with('/'));
        }
    }
    assert!(buffer.len() <= bytes.len());
}

fuzz_target!(|input: &[u8]| {
    read(input);
    let [resource, operation, tokens @ ..] = input else { return };
    let length = u32::try_from(24 + tokens.len()).expect("inputs are short");
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend([*resource, 0, *operation, 0]);
    frame.extend([0; 16]);
    frame.extend(tokens);
    read(&frame);
});
