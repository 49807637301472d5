//! The total order and the hash of values.
//!
//! `undefined < null < false < true < numbers < strings < arrays < objects`. Arrays among
//! themselves, and objects among themselves, follow a 128-bit hash: stable, without meaning. It is
//! the hash clients compute when they merge sorted ranges, so a position they send back in a resume
//! filter falls where they expect it.

use std::cmp::Ordering;

use orrery_model::{Number, Value};

/// A 128-bit hash whose halves are a Murmur3 x64 state.
type Seed = (u64, u64);

const ROOT: Seed = (0xbfc2_359e_afc0_e2b7, 0x8846_e002_84c4_cf1f);
const NULL: Seed = (0x1380_f68b_b3b0_cfe4, 0x156c_918b_f564_ee48);
const FALSE: Seed = (0xc1be_517f_e893_b40c, 0xe9fc_8a4c_531c_d0dd);
const TRUE: Seed = (0xf86d_4abf_9a41_2e74, 0x7884_8836_5c8a_985d);
const STRING: Seed = (0x61f5_3f0a_4420_4cfb, 0x0948_1be8_ef4b_56dd);
const ARRAY: Seed = (0xfa57_3b01_4c4d_c18e, 0xa014_512c_858e_b115);
const OBJECT: Seed = (0x77b2_85ac_511a_ef30, 0x3dcf_1872_4582_2449);
const ARRAY_INDEX: Seed = (0xfe05_7204_216d_b999, 0x5b1c_c317_8bd9_c593);
const PROPERTY_NAME: Seed = (0xc915_dde0_5849_2a8a, 0x7c8b_e2eb_a72e_4634);
const NUMBER: Seed = (0x2400_e8b8_94ce_9c2a, 0x790b_e1ea_bd7b_9481);

/// Orders two operands; `None` is undefined.
pub fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => compare_numbers(*a, *b),
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        (Some(a @ Value::Array(_)), Some(b @ Value::Array(_)))
        | (Some(a @ Value::Object(_)), Some(b @ Value::Object(_))) => {
            if a == b {
                Ordering::Equal
            } else {
                hash(a).cmp(&hash(b))
            }
        }
        (a, b) => type_rank(a).cmp(&type_rank(b)),
    }
}

/// Orders numbers; NaN comes before all others, so that the order is total.
pub fn compare_numbers(a: Number, b: Number) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.as_f64().is_nan().cmp(&a.as_f64().is_nan()))
}

/// The place of a value's type in the order; false and true have their own.
pub fn type_rank(operand: Option<&Value>) -> u8 {
    match operand {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(false)) => 2,
        Some(Value::Bool(true)) => 3,
        Some(Value::Number(_)) => 4,
        Some(Value::String(_)) => 5,
        Some(Value::Array(_)) => 6,
        Some(Value::Object(_)) => 7,
    }
}

/// A hash that equal values share: numbers by value, objects whatever the order of their members.
pub fn hash(value: &Value) -> u128 {
    join(hash_seeded(value, ROOT))
}

/// The hash of a tuple of operands, undefined ones included.
pub fn hash_operands<'v>(operands: impl Iterator<Item = Option<&'v Value>>) -> u128 {
    let mut state = ROOT;
    for operand in operands {
        state = match operand {
            Some(value) => hash_seeded(value, state),
            None => murmur(&[0xFF], state),
        };
    }
    join(state)
}

/// Scalars and containers in a value, long strings counting more than once: what memory bounds
/// are counted in.
pub fn cells(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / 256,
        Value::Array(items) => 1 + items.iter().map(cells).sum::<usize>(),
        Value::Object(object) => {
            1 + object.iter().map(|(name, value)| name.len() / 256 + cells(value)).sum::<usize>()
        }
        _ => 1,
    }
}

/// About how many bytes a value takes in memory.
pub fn bytes(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(bytes).sum(),
            Value::Object(object) => object.iter().map(|(name, value)| 16 + name.len() + bytes(value)).sum(),
            _ => 0,
        }
}

fn join((low, high): Seed) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

fn mix(value: Seed, seed: Seed) -> Seed {
    murmur(&join(value).to_le_bytes(), seed)
}

fn hash_seeded(value: &Value, seed: Seed) -> Seed {
    match value {
        Value::Null => mix(NULL, seed),
        Value::Bool(false) => mix(FALSE, seed),
        Value::Bool(true) => mix(TRUE, seed),
        Value::Number(number) => {
            // Adding zero turns -0 into 0, which it equals. The last two bytes hold what a 64-bit
            // integer has beyond a double; values are compared as doubles here.
            let mut bytes = [0; 10];
            bytes[..8].copy_from_slice(&(number.as_f64() + 0.0).to_bits().to_le_bytes());
            murmur(&bytes, mix(NUMBER, seed))
        }
        Value::String(text) => murmur(text.as_bytes(), mix(STRING, seed)),
        Value::Array(items) => {
            let mut state = mix(ARRAY, seed);
            for (index, item) in items.iter().enumerate() {
                let (low, carry) = ARRAY_INDEX.0.overflowing_add(index as u64);
                let item_seed = (low, ARRAY_INDEX.1 + u64::from(carry));
                state = mix(hash_seeded(item, item_seed), state);
            }
            state
        }
        Value::Object(object) => {
            let state = mix(OBJECT, seed);
            // Members are combined by xor, so their order does not matter.
            let members = object.iter().fold(0u128, |members, (name, value)| {
                let name_seed = murmur(name.as_bytes(), mix(STRING, PROPERTY_NAME));
                members ^ join(hash_seeded(value, name_seed))
            });
            if members == 0 { state } else { murmur(&members.to_le_bytes(), state) }
        }
    }
}

/// Murmur3 x64 128 with a seed for each half.
fn murmur(input: &[u8], seed: Seed) -> Seed {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let mix_low = |block: u64| block.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix_high = |block: u64| block.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let half = |bytes: &[u8]| {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(padded)
    };
    let (mut low, mut high) = seed;
    let (blocks, tail) = input.as_chunks::<16>();
    for block in blocks {
        low ^= mix_low(half(&block[..8]));
        low = low.rotate_left(27).wrapping_add(high).wrapping_mul(5).wrapping_add(0x52dc_e729);
        high ^= mix_high(half(&block[8..]));
        high = high.rotate_left(31).wrapping_add(low).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (tail_low, tail_high) = tail.split_at(tail.len().min(8));
    high ^= mix_high(half(tail_high));
    low ^= mix_low(half(tail_low));
    let length = input.len() as u64;
    low ^= length;
    high ^= length;
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    low = finish(low);
    high = finish(high);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    (low, high)
}

fn finish(mut half: u64) -> u64 {
    half ^= half >> 33;
    half = half.wrapping_mul(0xff51_afd7_ed55_8ccd);
    half ^= half >> 33;
    half = half.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    half ^ half >> 33
}
