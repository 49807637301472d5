//! The physical partitions that a throughput implies, and the partition of a key.

use orrery_model::offer::Throughput;
use orrery_model::{EffectiveKey, PartitionKeyDefinition};

/// The service's limits and the provisioned throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Request units per second of the container.
    pub throughput: u32,
    /// Number of physical partitions; derived from the throughput unless set.
    pub partitions: Option<u32>,
    pub partition_bytes: f64,
    pub logical_bytes: f64,
    pub partition_throughput: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            throughput: 10_000,
            partitions: None,
            partition_bytes: 50.0 * GIB,
            logical_bytes: 20.0 * GIB,
            partition_throughput: 10_000,
        }
    }
}

/// Bytes in a gibibyte, in which the service states its limits.
pub const GIB: f64 = (1u64 << 30) as f64;

impl Limits {
    /// Number of physical partitions of a new container with this throughput.
    pub fn partition_count(&self) -> u32 {
        self.partitions
            .unwrap_or_else(|| Throughput::Manual(self.throughput).partition_count())
            .clamp(1, 100_000)
    }

    /// The budget of each partition, in request units per second.
    pub fn share(&self) -> u32 {
        (self.throughput / self.partition_count()).max(1)
    }
}

/// Even ranges of the key space, as a new container has them.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Start of each partition except the first.
    starts: Vec<u128>,
}

impl Layout {
    /// Divides the key space into `count` ranges of equal size.
    pub fn even(count: u32) -> Self {
        // The boundaries do not depend on the paths.
        let definition = PartitionKeyDefinition::with_paths(&["/key"]).expect("the path is valid");
        let ranges = definition.even_ranges(count.max(1));
        Self { starts: ranges.iter().skip(1).map(|range| number(&range.min)).collect() }
    }

    /// Number of partitions.
    pub fn count(&self) -> usize {
        self.starts.len() + 1
    }

    /// The partition of a key by its first component's hash.
    #[inline]
    pub fn partition_of(&self, place: u128) -> usize {
        // The ranges are even, so the product is the partition or its neighbour.
        let count = self.count() as u128;
        // The upper 64 of the 126 bits, so that the product fits.
        let guess = usize::try_from(((place >> 62) * count) >> 64).unwrap_or(0).min(self.starts.len());
        if guess > 0 && place < self.starts[guess - 1] {
            guess - 1
        } else if guess < self.starts.len() && place >= self.starts[guess] {
            guess + 1
        } else {
            guess
        }
    }
}

fn number(key: &EffectiveKey) -> u128 {
    let mut bytes = [0; 16];
    let taken = key.as_bytes().len().min(16);
    bytes[..taken].copy_from_slice(&key.as_bytes()[..taken]);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_model::{KeyPart, PartitionKey};

    #[test]
    fn keys_land_where_the_server_puts_them() {
        let definition = PartitionKeyDefinition::with_paths(&["/key"]).unwrap();
        for count in [1, 2, 3, 7, 8, 100, 4999] {
            let (layout, ranges) = (Layout::even(count), definition.even_ranges(count));
            for number in 0..500 {
                let key = PartitionKey::new(vec![KeyPart::from(format!("key {number}").as_str())]);
                let effective = definition.effective_key(&key);
                let expected = ranges.iter().position(|range| range.contains(&effective)).unwrap();
                assert_eq!(layout.partition_of(super::number(&effective)), expected);
            }
            for start in &layout.starts {
                let at = layout.partition_of(*start);
                assert_eq!(layout.starts[at - 1], *start);
                assert_eq!(layout.partition_of(*start - 1), at - 1);
            }
        }
    }

    #[test]
    fn throughput_gives_partitions() {
        let count = |throughput| Limits { throughput, ..Limits::default() }.partition_count();
        assert_eq!([400, 10_000, 12_000, 48_000].map(count), [1, 1, 2, 8]);
        assert_eq!(Limits { throughput: 48_000, ..Limits::default() }.share(), 6000);
    }
}
