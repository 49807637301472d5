//! The interface through which the database gets the time, randomness and new ids.

/// The clock and RNG of the database.
pub trait Env: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch, on the controllable clock.
    fn now_ms(&self) -> i64;

    /// Uniformly random bytes.
    fn fill_random(&self, bytes: &mut [u8]);

    /// Seconds since the Unix epoch, as `_ts` holds them.
    fn now_seconds(&self) -> i64 {
        self.now_ms().div_euclid(1000)
    }

    fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A random (version 4) GUID in lower-case text.
    fn guid(&self) -> String {
        let mut bytes = [0; 16];
        self.fill_random(&mut bytes);
        // Version 4 and the variant of RFC 9562.
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        let mut text = String::with_capacity(36);
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push(char::from_digit(u32::from(byte >> 4), 16).expect("a nibble is a digit"));
            text.push(char::from_digit(u32::from(byte & 15), 16).expect("a nibble is a digit"));
        }
        text
    }
}
