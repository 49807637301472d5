//! MurmurHash3, frozen here: x86 32-bit for pre-calculated suffixes and version 1 partition keys, x64 128-bit for version 2
//! partition keys. It is in the public domain and has implementations in every language.
//!
//! The one implementation of the workspace. It lives in the key library, which depends on nothing of the server, so that
//! an application and the server hash alike; `orrery-model` re-exports it.

/// The 32-bit hash of the x86 variant.
pub fn x86_32(input: &[u8], seed: u32) -> u32 {
    // All constants are those of the reference implementation.
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
    // The reference takes the length as a 32-bit integer; longer input wraps.
    #[expect(clippy::cast_possible_truncation, reason = "the reference wraps the length")]
    let length = input.len() as u32;
    hash ^= length;
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85EB_CA6B);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xC2B2_AE35);
    hash ^ hash >> 16
}

/// The 128-bit hash of the x64 variant, its second half in the high bits: `to_be_bytes` gives the
/// order in which effective partition keys are written.
pub fn x64_128(input: &[u8], seed: u64) -> u128 {
    let (low, high) = x64_128_halves(input, (seed, seed));
    u128::from(high) << 64 | u128::from(low)
}

/// The same in two halves, each with a seed of its own: hashes that continue from another hash need both.
pub fn x64_128_halves(input: &[u8], seed: (u64, u64)) -> (u64, u64) {
    const C1: u64 = 0x87C3_7B91_1142_53D5;
    const C2: u64 = 0x4CF5_AD43_2745_937F;
    let mix_low = |block: u64| block.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix_high = |block: u64| block.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let (mut low, mut high) = seed;
    let (blocks, tail) = input.as_chunks::<16>();
    for block in blocks {
        let (block_low, block_high) = halves(block);
        low ^= mix_low(block_low);
        low = low.rotate_left(27).wrapping_add(high).wrapping_mul(5).wrapping_add(0x52DC_E729);
        high ^= mix_high(block_high);
        high = high.rotate_left(31).wrapping_add(low).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    // A zero half mixes to zero, so padding the tail equals the reference's fall-through.
    let mut block = [0; 16];
    block[..tail.len()].copy_from_slice(tail);
    let (block_low, block_high) = halves(&block);
    high ^= mix_high(block_high);
    low ^= mix_low(block_low);

    // The length tells inputs apart that differ only in trailing zeros.
    low ^= input.len() as u64;
    high ^= input.len() as u64;
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    low = x64_finish(low);
    high = x64_finish(high);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    (low, high)
}

fn halves(block: &[u8; 16]) -> (u64, u64) {
    let block = u128::from_le_bytes(*block);
    #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
    let low = block as u64;
    let high = (block >> 64) as u64;
    (low, high)
}

/// The final mix of one half of the x64 variant, which hashes derived from it share.
pub fn x64_finish(mut half: u64) -> u64 {
    half ^= half >> 33;
    half = half.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    half ^= half >> 33;
    half = half.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    half ^ half >> 33
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
