//! One pass over the items. For every candidate it collects distinct keys, heaviest keys and the spread over partitions,
//! the key space and time; and it draws a uniform sample for replaying workloads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use orrery_model::value::{self, Value};
use orrery_model::{KeyPart, murmur3};

use crate::candidate::{Candidate, Scratch};
use crate::fields::{Fields, Part, Paths, Values};
use crate::layout::Layout;
use crate::moment;
use crate::random::Random;
use crate::repeats::Repeats;
use crate::sketch::{Distinct, Entry, Frequent};

/// Number of time windows; they widen as the data gets longer.
pub const WINDOWS: usize = 64;
/// Cells of the key space for the heat map.
const CELLS_MAX: usize = 128;
/// Buckets of the key space whose bytes are counted, to predict splits.
pub const BUCKETS: usize = 4096;
/// Sample size.
pub const SAMPLE_ITEMS: usize = 50_000;
/// Keys whose names are kept.
const NAMES_MAX: usize = 4096;

/// The maximum size of the retained documents; beyond it the sample is halved.
const DOCUMENT_BYTES_MAX: usize = 192 << 20;

/// A sampled item.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// The properties that queries read.
    pub document: Option<Arc<Value>>,
    pub values: Box<[KeyPart]>,
    pub bytes: u32,
    pub terms: u32,
    pub at_ms: i64,
    /// Its index in the input.
    pub ordinal: u64,
}

/// Statistics of the items under one candidate.
#[derive(Clone, Debug)]
pub struct Spread {
    pub distinct: Distinct,
    pub frequent: Frequent,
    /// Bytes per bucket of the key space.
    pub buckets: Vec<u64>,
    /// Items and bytes per physical partition.
    pub partitions: Vec<(u64, u64)>,
    /// All bytes, including synthetic properties.
    pub bytes: u64,
    /// Items per window and cell.
    heat: Vec<u32>,
    names: HashMap<u64, String>,
}

/// A heavy key.
#[derive(Clone, Debug)]
pub struct HeavyKey {
    pub entry: Entry,
    pub name: Option<String>,
}

/// Which parts of sampled documents are retained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Documents {
    #[default]
    Nothing,
    /// These properties.
    Members(Vec<String>),
    Whole,
}

/// Consumes items one by one.
#[derive(Clone, Debug)]
pub struct Analyzer {
    pub paths: Paths,
    pub candidates: Vec<Candidate>,
    layout: Layout,
    spreads: Vec<Spread>,
    cells: usize,
    windows: Windows,
    time_slot: Option<usize>,
    id_slot: usize,
    wanted_ids: HashSet<u64>,
    sample: Vec<Sampled>,
    pinned: HashMap<u64, Sampled>,
    sample_max: usize,
    documents: Documents,
    document_bytes: usize,
    repeats: Repeats,
    keys: Vec<u64>,
    random: Random,
    items: u64,
    bytes: u64,
    item_bytes_max: u64,
    fields: Fields,
    scratch: Scratch,
}

/// The result of the pass.
#[derive(Clone, Debug)]
pub struct Analysis {
    pub paths: Paths,
    pub candidates: Vec<Candidate>,
    pub spreads: Vec<Spread>,
    pub items: u64,
    pub bytes: u64,
    pub item_bytes_max: u64,
    /// The earliest and latest time of an item, if items have one.
    pub time: Option<(i64, i64)>,
    pub windows: Windows,
    pub cells: usize,
    /// A uniform sample, ordered by time and index.
    pub sample: Vec<Sampled>,
    /// Items that a recording refers to, by the hash of their id.
    pub pinned: HashMap<u64, Sampled>,
    pub layout: Layout,
    /// Ids that occur several times.
    pub repeats: Repeats,
}

/// Time windows of equal width.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    pub start_ms: i64,
    pub width_ms: i64,
    min_ms: i64,
    max_ms: i64,
}

impl Windows {
    fn new() -> Self {
        Self { start_ms: 0, width_ms: 1000, min_ms: i64::MAX, max_ms: i64::MIN }
    }

    fn index(&self, at_ms: i64) -> Option<usize> {
        let index = usize::try_from((at_ms - self.start_ms).div_euclid(self.width_ms)).ok()?;
        (index < WINDOWS).then_some(index)
    }

    /// Widens the windows until `at_ms` fits.
    fn widened(&self, at_ms: i64) -> Self {
        let (min_ms, max_ms) = (self.min_ms.min(at_ms), self.max_ms.max(at_ms));
        let mut width_ms = self.width_ms;
        loop {
            // Aligned to multiples of the width, so that wider windows consist of whole narrower ones.
            let start_ms = min_ms.div_euclid(width_ms) * width_ms;
            if usize::try_from((max_ms - start_ms) / width_ms).is_ok_and(|last| last < WINDOWS) {
                return Self { start_ms, width_ms, min_ms, max_ms };
            }
            width_ms *= 2;
        }
    }

    /// Number of windows that contain data.
    pub fn count(&self) -> usize {
        if self.min_ms > self.max_ms { 0 } else { self.index(self.max_ms).map_or(0, |index| index + 1) }
    }
}

/// The hash by which ids are compared.
pub fn id_hash(id: &str) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
    let low = murmur3::x64_128(id.as_bytes(), 0) as u64;
    low
}

impl Analyzer {
    /// Starts a pass that measures these candidates.
    pub fn new(
        mut paths: Paths,
        candidates: Vec<Candidate>,
        partitions: u32,
        time_path: Option<&str>,
        seed: u64,
    ) -> Self {
        let layout = Layout::even(partitions);
        let cells = layout.count().min(CELLS_MAX);
        let spread = || Spread {
            distinct: Distinct::default(),
            frequent: Frequent::default(),
            buckets: vec![0; BUCKETS],
            partitions: vec![(0, 0); layout.count()],
            bytes: 0,
            heat: vec![0; WINDOWS * cells],
            names: HashMap::new(),
        };
        let spreads = candidates.iter().map(|_| spread()).collect();
        let time_slot = time_path.map(|path| paths.slot(path));
        let id_slot = paths.slot("/id");
        Self {
            paths,
            candidates,
            layout,
            spreads,
            cells,
            windows: Windows::new(),
            time_slot,
            id_slot,
            wanted_ids: HashSet::new(),
            sample: Vec::new(),
            pinned: HashMap::new(),
            sample_max: SAMPLE_ITEMS,
            documents: Documents::default(),
            document_bytes: 0,
            repeats: Repeats::default(),
            keys: Vec::new(),
            random: Random::new(seed),
            items: 0,
            bytes: 0,
            item_bytes_max: 0,
            fields: Fields::default(),
            scratch: Scratch::default(),
        }
    }

    /// Keeps the items with these ids (hashed by [`id_hash`]), whether or not they are sampled.
    pub fn keep_ids(&mut self, ids: impl Iterator<Item = u64>) {
        self.wanted_ids.extend(ids);
    }

    /// Sets which parts of sampled documents are retained.
    pub fn keep_documents(&mut self, documents: Documents) {
        self.documents = documents;
    }

    /// Changes the sample size, for tests of the extrapolation.
    pub fn set_sample_max(&mut self, items: usize) {
        self.sample_max = items.max(1);
    }

    /// Adds an item, given as JSON text.
    pub fn add(&mut self, json: &[u8]) -> Result<(), serde_json::Error> {
        // Taken out while `self` is borrowed. Its buffers are reused for every item.
        let mut fields = std::mem::take(&mut self.fields);
        let read = fields.read(&self.paths, json);
        if read.is_ok() {
            self.add_fields(&fields, json);
        }
        self.fields = fields;
        read
    }

    fn add_fields(&mut self, fields: &Fields, json: &[u8]) {
        let at_ms = self.time_slot.and_then(|slot| match fields.part(slot) {
            Part::Text(text) => moment::parse_text(text),
            Part::Number(number) => moment::parse_number(number),
            _ => None,
        });
        let window = at_ms.map(|at_ms| self.window(at_ms));
        let own_bytes = fields.bytes as u64;
        let ordinal = self.items;
        // One place for each candidate, in their order.
        self.keys.clear();
        for (candidate, spread) in self.candidates.iter().zip(&mut self.spreads) {
            let mut random = item_random(ordinal);
            let placed = candidate.place(&self.paths, fields, &mut random, &mut self.scratch);
            let bytes = own_bytes + u64::from(placed.added_bytes);
            self.keys.push(placed.hash);
            spread.distinct.add(placed.hash);
            let count = spread.frequent.add(placed.hash, bytes, at_ms.unwrap_or(0));
            // Naming every key would take too long. A key that is among the heaviest in the end is either one of the first
            // or reaches a count of 32 on the way.
            if (count == 32 || count == 1 && ordinal < 4096) && spread.names.len() < NAMES_MAX {
                let name = || candidate.text(&self.paths, fields, &mut item_random(ordinal));
                spread.names.entry(placed.hash).or_insert_with(name);
            }
            // The first 12 of 126 bits: one of 4096 buckets.
            let bucket = usize::try_from(placed.place >> 114).unwrap_or(0).min(BUCKETS - 1);
            spread.buckets[bucket] += bytes;
            let partition = self.layout.partition_of(placed.place);
            spread.partitions[partition].0 += 1;
            spread.partitions[partition].1 += bytes;
            spread.bytes += bytes;
            if let Some(window) = window {
                // If there are more partitions than cells, neighbours share a cell.
                let cell = partition * self.cells / self.layout.count();
                spread.heat[window * self.cells + cell] += 1;
            }
        }
        self.items += 1;
        self.bytes += own_bytes;
        self.item_bytes_max = self.item_bytes_max.max(own_bytes);
        // Reservoir sampling: item n replaces a random one with probability size / n.
        let place = if self.sample.len() < self.sample_max {
            self.sample.len()
        } else {
            usize::try_from(self.random.below(self.items)).unwrap_or(usize::MAX)
        };
        let id = match fields.part(self.id_slot) {
            Part::Text(id) => Some(id_hash(id)),
            _ => None,
        };
        if let Some(id) = id.filter(|id| self.repeats.follows(*id)) {
            self.repeats.add(id, self.keys.iter().copied());
        }
        let wanted = id.filter(|id| self.wanted_ids.contains(id));
        if place >= self.sample_max && wanted.is_none() {
            return;
        }
        // Only items that are kept are parsed.
        let document = match &self.documents {
            Documents::Nothing => None,
            Documents::Members(names) => value::parse_members(json, names).ok(),
            Documents::Whole => value::parse(json).ok(),
        };
        if self.documents == Documents::Whole {
            self.document_bytes += json.len();
        }
        let sampled = Sampled {
            document: document.map(Arc::new),
            values: fields.to_parts(),
            bytes: u32::try_from(fields.bytes).unwrap_or(u32::MAX),
            terms: u32::try_from(fields.terms).unwrap_or(u32::MAX),
            at_ms: at_ms.unwrap_or(0),
            ordinal,
        };
        if let Some(id) = wanted {
            self.pinned.insert(id, sampled.clone());
        }
        if place < self.sample.len() {
            self.sample[place] = sampled;
        } else if place < self.sample_max {
            self.sample.push(sampled);
        }
        if self.document_bytes > DOCUMENT_BYTES_MAX {
            self.halve_sample();
        }
    }

    /// Drops a random half of the sample, and limits it to that size.
    fn halve_sample(&mut self) {
        self.sample_max = (self.sample.len() / 2).max(1);
        while self.sample.len() > self.sample_max {
            let place = self.random.index(self.sample.len());
            self.sample.swap_remove(place);
        }
        self.document_bytes /= 2;
    }

    fn window(&mut self, at_ms: i64) -> usize {
        let windows = &mut self.windows;
        if at_ms >= windows.min_ms && at_ms <= windows.max_ms {
            return windows.index(at_ms).unwrap_or(0);
        }
        let widened = windows.widened(at_ms);
        if widened.start_ms != windows.start_ms || widened.width_ms != windows.width_ms {
            for spread in &mut self.spreads {
                let mut heat = vec![0u32; WINDOWS * self.cells];
                for (old, row) in spread.heat.chunks(self.cells).enumerate() {
                    if row.iter().all(|count| *count == 0) {
                        continue;
                    }
                    // Wider windows start at multiples of the old ones, so every old window falls into one new window.
                    let start = windows.start_ms + i64::try_from(old).unwrap_or(0) * windows.width_ms;
                    let new = widened.index(start.max(widened.start_ms)).unwrap_or(0);
                    for (cell, count) in row.iter().enumerate() {
                        heat[new * self.cells + cell] += count;
                    }
                }
                spread.heat = heat;
            }
        }
        *windows = widened;
        windows.index(at_ms).unwrap_or(0)
    }

    /// Ends the pass and sorts the sample.
    pub fn finish(self) -> Analysis {
        let mut sample = self.sample;
        // In the order in which the items were written.
        sample.sort_by_key(|item| (item.at_ms, item.ordinal));
        // Without any time the minimum is still above the maximum.
        let time = (self.windows.min_ms <= self.windows.max_ms)
            .then_some((self.windows.min_ms, self.windows.max_ms));
        Analysis {
            paths: self.paths,
            candidates: self.candidates,
            spreads: self.spreads,
            items: self.items,
            bytes: self.bytes,
            item_bytes_max: self.item_bytes_max,
            time,
            windows: self.windows,
            cells: self.cells,
            sample,
            pinned: self.pinned,
            layout: self.layout,
            repeats: self.repeats,
        }
    }
}

/// Deterministic randomness for an item's suffix: the same each time the item is seen.
pub fn item_random(ordinal: u64) -> Random {
    Random::new(ordinal ^ 0x5EED)
}

impl Spread {
    /// The heaviest keys, heaviest first.
    pub fn heaviest(&self, count: usize) -> Vec<HeavyKey> {
        let top = self.frequent.top(count).into_iter();
        top.map(|entry| HeavyKey { entry, name: self.names.get(&entry.hash).cloned() }).collect()
    }

    /// Items of one window, per cell.
    pub fn heat_of(&self, window: usize, cells: usize) -> &[u32] {
        &self.heat[window * cells..(window + 1) * cells]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn analyzer(partitions: u32) -> Analyzer {
        let mut paths = Paths::new();
        let candidates = vec![
            Candidate::property("/device", &mut paths),
            Candidate::concatenated(&[("/at", Some("day"))], &mut paths),
        ];
        Analyzer::new(paths, candidates, partitions, Some("/at"), 1)
    }

    #[test]
    fn windows_widen_without_losing_counts() {
        let mut analyzer = analyzer(4);
        for hour in (0..24 * 30).rev() {
            let at = moment::print(1_533_772_800_000 + hour * 3_600_000);
            let item = format!(r#"{{"id":"{hour}","device":"d{}","at":"{at}"}}"#, hour % 100);
            analyzer.add(item.as_bytes()).unwrap();
        }
        let analysis = analyzer.finish();
        assert!((33..=WINDOWS).contains(&analysis.windows.count()), "{:?}", analysis.windows);
        for spread in &analysis.spreads {
            let heat: u32 = (0..WINDOWS).flat_map(|window| spread.heat_of(window, 4)).sum();
            assert_eq!(heat, 24 * 30);
            assert_eq!(spread.partitions.iter().map(|(items, _)| items).sum::<u64>(), 24 * 30);
            assert_eq!(spread.buckets.iter().sum::<u64>(), spread.bytes);
        }
        // A synthetic key is stored with the item: its name, quotes and separators, and the ten characters of a day.
        assert_eq!(analysis.spreads[0].bytes, analysis.bytes);
        assert_eq!(analysis.spreads[1].bytes, analysis.bytes + 24 * 30 * (17 + 10));
        assert!((97.0..=103.0).contains(&analysis.spreads[0].distinct.estimate()));
        assert!((29.0..=31.0).contains(&analysis.spreads[1].distinct.estimate()));
        let largest = &analysis.spreads[1].heaviest(1)[0];
        assert_eq!(largest.entry.items, 24);
        assert!(largest.name.as_ref().unwrap().starts_with("[\"2018-0"), "{largest:?}");
        // All items of a day are in one partition; windows that lie within one day show it.
        let hot = (0..analysis.windows.count()).filter(|window| {
            let heat = analysis.spreads[1].heat_of(*window, 4);
            let sum = heat.iter().sum::<u32>();
            sum > 0 && heat.contains(&sum)
        });
        assert!(hot.count() > 10);
        assert!(analysis.sample.is_sorted_by_key(|item| item.at_ms));
    }

    #[test]
    fn the_sample_is_uniform_and_bounded() {
        let mut analyzer = analyzer(1);
        analyzer.set_sample_max(1000);
        analyzer.keep_ids([id_hash("5"), id_hash("no such item")].into_iter());
        for number in 0..50_000 {
            analyzer.add(format!(r#"{{"id":"{number}","device":{number}}}"#).as_bytes()).unwrap();
        }
        let analysis = analyzer.finish();
        assert_eq!((analysis.sample.len(), analysis.pinned.len()), (1000, 1));
        assert_eq!(analysis.pinned[&id_hash("5")].ordinal, 5);
        let early = analysis.sample.iter().filter(|item| item.ordinal < 25_000).count();
        assert!((430..570).contains(&early), "{early}");
    }
}
