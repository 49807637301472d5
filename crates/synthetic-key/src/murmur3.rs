//! MurmurHash3 x86 32-bit, the hash of pre-calculated suffixes. It is in the public domain, has
//! implementations in every language, and is frozen here: a definition always yields the same suffix.

/// Hashes bytes with a seed. Suffixes use seed 0.
pub fn x86_32(input: &[u8], seed: u32) -> u32 {
    let mix = |block: u32| block.wrapping_mul(0xCC9E_2D51).rotate_left(15).wrapping_mul(0x1B87_3593);
    let mut hash = seed;
    let (blocks, tail) = input.as_chunks::<4>();
    for block in blocks {
        hash ^= mix(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xE654_6B64);
    }
    if !tail.is_empty() {
        let mut block = [0; 4];
        block[..tail.len()].copy_from_slice(tail);
        hash ^= mix(u32::from_le_bytes(block));
    }
    #[expect(clippy::cast_possible_truncation, reason = "the reference takes the length as 32 bits")]
    let length = input.len() as u32;
    hash ^= length;
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85EB_CA6B);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xC2B2_AE35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::x86_32;

    /// Test values published with other implementations of the hash.
    #[test]
    fn agrees_with_published_values() {
        assert_eq!(x86_32(b"", 0), 0);
        assert_eq!(x86_32(b"", 1), 0x514E_28B7);
        assert_eq!(x86_32(b"test", 0), 0xBA6B_D213);
        assert_eq!(x86_32(b"Hello, world!", 0), 0xC036_3E43);
        assert_eq!(x86_32(b"The quick brown fox jumps over the lazy dog", 0), 0x2E4F_F723);
    }
}
