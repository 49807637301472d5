//! Hashes of values in the forms that clients and the service compute: 128 bits in the order of arrays and objects, 64 bits
//! in the function HASH.
//!
//! Both are built alike on Murmur3. The state of the hash starts as a seed; a value stirs in the constant of its type, and then
//! its content. Items of an array are hashed apart, from a seed that tells their place, and so are members of an object,
//! from the hash of their name; members are joined by xor, so their order does not matter.

use orrery_model::{Number, Value, murmur3};

/// One width of the hash.
pub(crate) trait Hash {
    type State: Copy + Default + PartialEq;

    const NULL: Self::State;
    const FALSE: Self::State;
    const TRUE: Self::State;
    const NUMBER: Self::State;
    const STRING: Self::State;
    const ARRAY: Self::State;
    const OBJECT: Self::State;
    const PROPERTY_NAME: Self::State;

    /// Stirs in bytes.
    fn stir(input: &[u8], state: Self::State) -> Self::State;

    /// Stirs in a constant or another hash.
    fn mix(value: Self::State, state: Self::State) -> Self::State;

    fn xor(one: Self::State, other: Self::State) -> Self::State;

    /// The seed for the item at this place of an array.
    fn item_seed(place: usize) -> Self::State;

    /// A double, and what an integer has beyond it.
    fn number_bytes(number: Number) -> [u8; 10];

    /// Hashes a value, starting from a seed.
    fn value(value: &Value, seed: Self::State) -> Self::State {
        match value {
            Value::Null => Self::mix(Self::NULL, seed),
            Value::Bool(false) => Self::mix(Self::FALSE, seed),
            Value::Bool(true) => Self::mix(Self::TRUE, seed),
            Value::Number(number) => Self::stir(&Self::number_bytes(*number), Self::mix(Self::NUMBER, seed)),
            Value::String(text) => Self::stir(text.as_bytes(), Self::mix(Self::STRING, seed)),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.fold(Self::mix(Self::ARRAY, seed), |state, (place, item)| {
                    Self::mix(Self::value(item, Self::item_seed(place)), state)
                })
            }
            Value::Object(object) => {
                let state = Self::mix(Self::OBJECT, seed);
                // Combined by XOR, since the order of members does not count.
                let members = object.iter().fold(Self::State::default(), |members, (name, value)| {
                    let name = Self::stir(name.as_bytes(), Self::mix(Self::STRING, Self::PROPERTY_NAME));
                    Self::xor(members, Self::value(value, name))
                });
                // An empty object adds nothing.
                if members == Self::State::default() { state } else { Self::mix(members, state) }
            }
        }
    }
}

/// The hash of clients that merge sorted or distinct rows: Murmur3 x64 128 with a seed for each half.
pub(crate) struct Wide;

impl Hash for Wide {
    /// Low and high half.
    type State = (u64, u64);

    const NULL: Self::State = (0x1380_f68b_b3b0_cfe4, 0x156c_918b_f564_ee48);
    const FALSE: Self::State = (0xc1be_517f_e893_b40c, 0xe9fc_8a4c_531c_d0dd);
    const TRUE: Self::State = (0xf86d_4abf_9a41_2e74, 0x7884_8836_5c8a_985d);
    const NUMBER: Self::State = (0x2400_e8b8_94ce_9c2a, 0x790b_e1ea_bd7b_9481);
    const STRING: Self::State = (0x61f5_3f0a_4420_4cfb, 0x0948_1be8_ef4b_56dd);
    const ARRAY: Self::State = (0xfa57_3b01_4c4d_c18e, 0xa014_512c_858e_b115);
    const OBJECT: Self::State = (0x77b2_85ac_511a_ef30, 0x3dcf_1872_4582_2449);
    const PROPERTY_NAME: Self::State = (0xc915_dde0_5849_2a8a, 0x7c8b_e2eb_a72e_4634);

    fn stir(input: &[u8], state: Self::State) -> Self::State {
        murmur3::x64_128_halves(input, state)
    }

    fn mix((low, high): Self::State, state: Self::State) -> Self::State {
        let both = u128::from(high) << 64 | u128::from(low);
        Self::stir(&both.to_le_bytes(), state)
    }

    fn xor(one: Self::State, other: Self::State) -> Self::State {
        (one.0 ^ other.0, one.1 ^ other.1)
    }

    fn item_seed(place: usize) -> Self::State {
        const FIRST: (u64, u64) = (0xfe05_7204_216d_b999, 0x5b1c_c317_8bd9_c593);
        let (low, carry) = FIRST.0.overflowing_add(place as u64);
        (low, FIRST.1 + u64::from(carry))
    }

    /// Values are compared as doubles here, so nothing is beyond one.
    fn number_bytes(number: Number) -> [u8; 10] {
        with_extra(number.as_f64(), 0)
    }
}

/// The hash of the function HASH: one half of the same, whose constants the service's planner gave away in its answers.
pub(crate) struct Narrow;

impl Hash for Narrow {
    type State = u64;

    const NULL: u64 = 0xc9a6_2cde_5e5e_46a9;
    const FALSE: u64 = 0xb9d5_13f6_4037_4a9e;
    const TRUE: u64 = 0xa966_435d_d651_d0ef;
    const NUMBER: u64 = 0x92d5_e4f1_9fb0_b3fe;
    const STRING: u64 = 0xc495_960b_1bf3_031d;
    const ARRAY: u64 = 0x47f9_1c76_36e3_eacc;
    const OBJECT: u64 = 0x048a_1e6f_4a51_fdd4;
    const PROPERTY_NAME: u64 = 0x1dfc_e123_ef7f_079e;

    fn stir(input: &[u8], mut state: u64) -> u64 {
        let (blocks, tail) = input.as_chunks::<8>();
        for block in blocks {
            state ^= mix_low(u64::from_le_bytes(*block));
            state = state.rotate_left(27).wrapping_mul(5).wrapping_add(0x52dc_e729);
        }
        state ^= mix_low(word(tail));
        murmur3::x64_finish(state ^ input.len() as u64)
    }

    fn mix(value: u64, state: u64) -> u64 {
        Self::stir(&value.to_le_bytes(), state)
    }

    fn xor(one: u64, other: u64) -> u64 {
        one ^ other
    }

    fn item_seed(place: usize) -> u64 {
        const FIRST: u64 = 0xa6a9_465f_6993_03c9;
        FIRST.wrapping_add(place as u64)
    }

    fn number_bytes(number: Number) -> [u8; 10] {
        let Number::Int(integer) = number else { return with_extra(number.as_f64(), 0) };
        // The double has the first 53 digits, unrounded; what is left is at most eleven digits.
        let magnitude = integer.unsigned_abs();
        let dropped = (u64::BITS - magnitude.leading_zeros()).saturating_sub(f64::MANTISSA_DIGITS);
        let rest = magnitude & ((1 << dropped) - 1);
        #[expect(clippy::cast_precision_loss, reason = "the digits that a double lacks are zero")]
        let double = (magnitude - rest) as f64;
        #[expect(clippy::cast_possible_truncation, reason = "left-aligned in sixteen digits")]
        let extra = (rest << (16 - dropped)) as u16;
        with_extra(if integer < 0 { -double } else { double }, extra)
    }
}

fn with_extra(double: f64, extra: u16) -> [u8; 10] {
    let mut bytes = [0; 10];
    // Adding zero turns -0 into 0, which it equals.
    bytes[..8].copy_from_slice(&(double + 0.0).to_bits().to_le_bytes());
    bytes[8..].copy_from_slice(&extra.to_le_bytes());
    bytes
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn mix_low(block: u64) -> u64 {
    block.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn word(bytes: &[u8]) -> u64 {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(padded)
}
