//! The items of every system, and how operations choose among them. Everything is derived from seeds.

/// Items under one partition key.
pub const ITEMS_PER_KEY: u64 = 100;

/// A small fast generator (splitmix64), the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound.max(1))) >> 64) as u64
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Item numbers by YCSB's Zipf distribution (0.99), scrambled over the whole space.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    const THETA: f64 = 0.99;

    pub fn new(items: u64) -> Self {
        let zeta = |n: u64| (1..=n).map(|rank| 1.0 / (rank as f64).powf(Self::THETA)).sum::<f64>();
        let (whole, two) = (zeta(items), zeta(2));
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - Self::THETA)) / (1.0 - two / whole);
        Self { items, alpha: 1.0 / (1.0 - Self::THETA), zeta: whole, eta }
    }

    pub fn rank(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5_f64.powf(Self::THETA) {
            return 1;
        }
        let rank = (self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64;
        rank.min(self.items - 1)
    }

    pub fn scrambled(&self, random: &mut Random) -> u64 {
        Random::new(self.rank(random)).next() % self.items
    }
}

pub fn id(number: u64) -> String {
    text(|out| push_id(out, number))
}

pub fn key(number: u64) -> String {
    text(|out| push_key(out, number))
}

pub fn push_id(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(b"user");
    push_number(out, number, 10);
}

pub fn push_key(out: &mut Vec<u8>, number: u64) {
    out.push(b'p');
    push_number(out, number / ITEMS_PER_KEY, 8);
}

/// Appends a number, padded with zeros to a minimum number of digits.
pub fn push_number(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let start = out.len();
    while number > 0 || out.len() - start < width {
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
    }
    out[start..].reverse();
}

fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    push(&mut out);
    String::from_utf8(out).expect("documents are text")
}

/// The value of the indexed property that ten items share.
pub fn code(number: u64) -> String {
    text(|out| push_code(out, number))
}

fn push_code(out: &mut Vec<u8>, number: u64) {
    out.push(b'c');
    push_number(out, number / 10, 8);
}

pub const STATUSES: [&str; 8] = ["new", "paid", "packed", "sent", "arrived", "returned", "lost", "cancelled"];

/// An item of about 1 KB; `version` changes what updates change.
pub fn item(number: u64, version: u64) -> String {
    text(|out| push_item(out, number, version))
}

/// The same, appended. Made for every write of a benchmark, so it costs a fraction of a microsecond.
pub fn push_item(out: &mut Vec<u8>, number: u64, version: u64) {
    let mut random = Random::new(number.wrapping_mul(31).wrapping_add(version));
    out.reserve(1100);
    out.extend_from_slice(b"{\"id\":\"");
    push_id(out, number);
    out.extend_from_slice(b"\",\"pk\":\"");
    push_key(out, number);
    out.extend_from_slice(b"\",\"code\":\"");
    push_code(out, number);
    out.extend_from_slice(b"\",\"rank\":");
    push_number(out, random.below(1_000_000_000), 1);
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(STATUSES[random.below(8) as usize].as_bytes());
    out.extend_from_slice(b"\",\"version\":");
    push_number(out, version, 1);
    for field in 0..8_u8 {
        out.extend_from_slice(b",\"field");
        out.push(b'0' + field);
        out.extend_from_slice(b"\":\"");
        for _ in 0..12 {
            // A letter from each byte: 26 of 256 equal parts.
            let letters = random.next().to_le_bytes().map(|byte| b'a' + ((u16::from(byte) * 26) >> 8) as u8);
            out.extend_from_slice(&letters);
        }
        out.push(b'"');
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_a_kilobyte_and_repeatable() {
        assert_eq!(item(7, 0), item(7, 0));
        assert_ne!(item(7, 0), item(7, 1));
        assert!((950..1100).contains(&item(123_456, 3).len()), "{}", item(123_456, 3).len());
        serde_json::from_str::<serde_json::Value>(&item(1, 1)).unwrap();
    }

    #[test]
    fn the_zipf_distribution_is_steep() {
        let (zipf, mut random) = (Zipf::new(10_000), Random::new(1));
        let hot = (0..100_000).filter(|_| zipf.rank(&mut random) < 100).count();
        assert!((45_000..60_000).contains(&hot), "{hot}");
    }
}
