//! The charge of a query under a candidate, as on the server: the partitions it visits, the access path chosen by the
//! server's own rules, and the cost of reading along it.
//!
//! The server reads entries and items in growing batches, one partition after another, and stops at the last row
//! needed; sorted and grouped rows need all of them, unless an index provides the order.

use std::collections::{HashMap, HashSet};

use orrery_metering::cost;
use orrery_model::container::{IndexPath, IndexStep};
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Charge, KeyPart};
use orrery_query::choice::{Choice, Chosen, Merits, Step};
use orrery_query::filter::{fixed_values, named_items};
use orrery_query::pipeline::Shape;

use crate::analysis::{Sampled, Spread, item_random};
use crate::candidate::{Candidate, Placed, Scratch, Visit};
use crate::fields::{Paths, segments};
use crate::layout::Layout;
use crate::matching::{Found, Matching, Order, RowSize, Way};
use crate::workload::QueryInstance;

/// Bytes of system properties that the server adds to each returned item.
const SYSTEM_BYTES: f64 = 190.0;
/// Up to this many keys, the index is read key by key.
const POINTS_MAX: usize = 64;
/// The maximum number of alternatives of a filter; beyond that it counts as unrestricted.
const KEYS_MAX: usize = 10_000;
/// Rows and bytes of a page.
const PAGE_ROWS: f64 = 1000.0;
const PAGE_BYTES: f64 = (4 << 20) as f64;
/// The batches in which entries and items are read.
const BATCHES: [f64; 4] = [32.0, 64.0, 128.0, 256.0];
/// Overhead of an index entry beyond its value, and of an item beyond its text, in bytes.
const ENTRY_BYTES: f64 = 42.0;
const ITEM_BYTES: f64 = 48.0;
/// Items of the requested keys that are counted before their order is taken from an index.
const OWN_ITEMS_MAX: f64 = 1024.0;
/// Entries of an order that are looked at to see how many belong to the requested keys.
const SEQUENCE_ENTRIES: f64 = 128.0;
/// What each read adds to a partition's share of the charge, in bytes.
const READ_BYTES: f64 = 64.0;

/// The cost of a query under a candidate.
#[derive(Clone, Debug)]
pub struct QueryCost {
    /// Visited partitions with their share of the work.
    pub partitions: Vec<(usize, f64)>,
    pub charge: Charge,
    /// The only key that was visited.
    pub key: Option<u64>,
    /// All items of the partitions are read.
    pub scans: bool,
}

/// Where the sampled items are under a candidate.
pub struct Placement<'a> {
    candidate: &'a Candidate,
    paths: &'a Paths,
    layout: &'a Layout,
    matching: &'a Matching,
    pub placed: Vec<Placed>,
    partition: Vec<usize>,
    bytes: Vec<f64>,
    /// Evenly sampled items by the key and by the first level of the key.
    by_key: HashMap<u64, Vec<u32>>,
    by_first: HashMap<u128, Vec<u32>>,
    /// Evenly sampled items and their bytes per partition.
    totals: Vec<(f64, f64)>,
    counted: Counted,
    key_paths: Vec<IndexPath>,
    definition: Option<PartitionKeyDefinition>,
}

/// Items as counted in the pass over all data, in which the sample has an error.
struct Counted {
    /// Of each partition.
    partitions: Vec<f64>,
    /// Of the heaviest keys.
    keys: HashMap<u64, f64>,
}

impl Counted {
    /// Heavy keys are those whose count is known within this share.
    const ERROR_MAX: f64 = 0.05;

    #[expect(clippy::cast_precision_loss, reason = "counts of items")]
    fn new(spread: Option<&Spread>, total: f64) -> Self {
        let Some(spread) = spread else { return Self { partitions: Vec::new(), keys: HashMap::new() } };
        let items: u64 = spread.partitions.iter().map(|(items, _)| *items).sum();
        let scale = total / (items as f64).max(1.0);
        let error = spread.frequent.error_items() as f64;
        let heavy = spread.frequent.top(usize::MAX).into_iter();
        let heavy = heavy.filter(|entry| error <= entry.items as f64 * Self::ERROR_MAX);
        Self {
            partitions: spread.partitions.iter().map(|(items, _)| *items as f64 * scale).collect(),
            // The true count lies between the tracked one and that plus the error; the middle is assumed.
            keys: heavy.map(|entry| (entry.hash, (entry.items as f64 + error / 2.0) * scale)).collect(),
        }
    }
}

/// The reads in one partition.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    entries: f64,
    items: f64,
    bytes: f64,
    rows: f64,
}

impl Part {
    fn add(&mut self, other: &Self, share: f64) {
        self.entries += other.entries * share;
        self.items += other.items * share;
        self.bytes += other.bytes * share;
        self.rows += other.rows * share;
    }
}

/// The total reads.
struct Work {
    sum: Part,
    weights: Vec<f64>,
    pages: f64,
    /// Visits of partitions over all pages.
    visits: f64,
    scans: bool,
}

/// How a query finds its items.
enum Path<'f> {
    Scan,
    Way(&'f Way, bool),
    Order(&'f Order),
}

impl<'a> Placement<'a> {
    /// Places the items of a replay.
    pub fn new(
        candidate: &'a Candidate,
        paths: &'a Paths,
        layout: &'a Layout,
        matching: &'a Matching,
        items: &[Sampled],
        spread: Option<&Spread>,
    ) -> Self {
        let mut scratch = Scratch::default();
        let place = |item: &Sampled| {
            candidate.place(paths, &item.values[..], &mut item_random(item.ordinal), &mut scratch)
        };
        let placed: Vec<Placed> = items.iter().map(place).collect();
        let partition: Vec<usize> = placed.iter().map(|placed| layout.partition_of(placed.place)).collect();
        let bytes = items.iter().zip(&placed);
        let bytes: Vec<f64> =
            bytes.map(|(item, placed)| f64::from(item.bytes) + f64::from(placed.added_bytes)).collect();
        let mut totals = vec![(0.0, 0.0); layout.count()];
        let (mut by_key, mut by_first): (HashMap<u64, Vec<u32>>, HashMap<u128, Vec<u32>>) =
            Default::default();
        // Items that a recording refers to come after the uniform sample, and would distort the counts.
        for (at, placed) in (0u32..).zip(&placed).take(matching.uniform) {
            let total = &mut totals[partition[at as usize]];
            *total = (total.0 + 1.0, total.1 + bytes[at as usize]);
            by_key.entry(placed.hash).or_default().push(at);
            if candidate.is_hierarchical() {
                by_first.entry(placed.place).or_default().push(at);
            }
        }
        let names =
            |path: &String| IndexPath(segments(path).map(|name| IndexStep::Property(name.into())).collect());
        let plain = candidate.definition.is_none();
        let key_paths: Vec<&str> = candidate.key_paths.iter().map(String::as_str).collect();
        // A filter can name the key itself only if it consists of plain properties.
        let definition = PartitionKeyDefinition::with_paths(&key_paths).ok().filter(|_| plain);
        let key_paths = candidate.key_paths.iter().map(names).collect();
        Self {
            candidate,
            paths,
            layout,
            matching,
            placed,
            partition,
            bytes,
            by_key,
            by_first,
            totals,
            counted: Counted::new(spread, matching.total),
            key_paths,
            definition,
        }
    }

    /// The partitions that a read visits.
    pub fn partitions_of(&self, visit: &Visit) -> Vec<usize> {
        let mut partitions: Vec<usize> = match visit {
            Visit::Keys(keys) => keys.iter().map(|key| self.layout.partition_of(key.place)).collect(),
            Visit::Prefixes(places) => places.iter().map(|place| self.layout.partition_of(*place)).collect(),
            Visit::Everywhere => return (0..self.layout.count()).collect(),
        };
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }

    /// By how much the sample's counts differ from those of the whole pass, for each of these partitions.
    fn corrections(&self, window: &Window, partitions: &[usize]) -> Vec<f64> {
        let none = vec![1.0; partitions.len()];
        let matching = self.matching;
        // With all data in the sample there is no error to correct.
        if matching.is_whole() || self.counted.partitions.is_empty() || matching.uniform == 0 {
            return none;
        }
        let each = matching.total / matching.uniform as f64;
        let ratio = |counted: f64, sampled: f64| if sampled > 0.0 { counted / (sampled * each) } else { 1.0 };
        match window {
            Window::All => {
                let own = |at: &usize| ratio(self.counted.partitions[*at], self.totals[*at].0);
                partitions.iter().map(own).collect()
            }
            Window::Keys(keys) => {
                let (mut counted, mut sampled) = (0.0, 0.0);
                for key in keys {
                    // A key that is not heavy was not counted, so nothing is known of its error.
                    let Some(items) = self.counted.keys.get(key) else { return none };
                    counted += items;
                    sampled += self.by_key.get(key).map_or(0.0, |items| items.len() as f64);
                }
                vec![ratio(counted, sampled); partitions.len()]
            }
            Window::Places(_) => none,
        }
    }

    /// The keys that a query must visit, given the values fixed by its filter.
    pub fn visit_of(&self, instance: &QueryInstance) -> Visit {
        let slots = self.candidate.slots();
        let wanted = slots.iter().map(|slot| segments(self.paths.name(*slot)).map(Box::from).collect());
        let Some(alternatives) = fixed_values(&instance.program, wanted.collect()) else {
            return Visit::Everywhere;
        };
        let mut all: Option<Visit> = None;
        let mut known = vec![KeyPart::Undefined; self.paths.len()];
        for values in alternatives {
            for (slot, value) in slots.iter().zip(values) {
                known[*slot] = value.unwrap_or(KeyPart::Undefined);
            }
            let visit = self.candidate.visit(self.paths, &known[..]);
            all = Some(match (all, visit) {
                (None, visit) => visit,
                (Some(Visit::Keys(mut keys)), Visit::Keys(more)) => {
                    keys.extend(more);
                    Visit::Keys(keys)
                }
                (Some(Visit::Prefixes(mut places)), Visit::Prefixes(more)) => {
                    places.extend(more);
                    Visit::Prefixes(places)
                }
                // Alternatives of different kinds cannot be listed together.
                _ => return Visit::Everywhere,
            });
            if matches!(&all, Some(Visit::Keys(keys)) if keys.len() > KEYS_MAX) {
                return Visit::Everywhere;
            }
        }
        match all {
            Some(Visit::Keys(mut keys)) => {
                let mut seen = HashSet::new();
                keys.retain(|key| seen.insert(key.hash));
                Visit::Keys(keys)
            }
            Some(visit) => visit,
            // The filter contradicts itself.
            None => Visit::Keys(Vec::new()),
        }
    }

    /// The cost of a query with its parameters.
    pub fn cost(&self, instance: &QueryInstance, found: &Found) -> QueryCost {
        let visit = self.visit_of(instance);
        let partitions = self.partitions_of(&visit);
        let shape = instance.program.shape();
        if found.is_empty || shape == Shape::Once || partitions.is_empty() {
            // Nothing is read, but the visit of a partition is charged.
            let charge = cost::query(&cost::QueryWork { partitions: 1, ..Default::default() });
            let first = partitions.first().copied().unwrap_or(0);
            return QueryCost { partitions: vec![(first, 1.0)], charge, key: None, scans: false };
        }
        let key = match &visit {
            Visit::Keys(keys) if keys.len() == 1 => Some(keys[0].hash),
            _ => None,
        };
        let reading = Reading::new(self, instance, found, &visit, &partitions);
        let work = reading.run(shape);
        let (charge, scans) = (reading.charge(&work), work.scans);
        let weights = work.weights.into_iter();
        let visited: Vec<(usize, f64)> =
            partitions.iter().copied().zip(weights).filter(|(_, weight)| *weight > 0.0).collect();
        QueryCost { partitions: visited, charge, key, scans }
    }
}

/// A query that reads.
struct Reading<'p, 'a> {
    placement: &'p Placement<'a>,
    instance: &'p QueryInstance,
    found: &'p Found,
    window: Window,
    /// The keys that the filter names, if it names whole keys.
    keys: Option<usize>,
    /// The place of each partition among those that are visited.
    local: Vec<Option<usize>>,
    count: usize,
    /// Rows per partition.
    rows: Vec<f64>,
    /// By how much the sample's counts of the keys or partitions that are read must be corrected, per partition.
    corrections: Vec<f64>,
}

impl<'p, 'a> Reading<'p, 'a> {
    fn new(
        placement: &'p Placement<'a>,
        instance: &'p QueryInstance,
        found: &'p Found,
        visit: &Visit,
        partitions: &[usize],
    ) -> Self {
        let mut local = vec![None; placement.layout.count()];
        for (at, partition) in partitions.iter().enumerate() {
            local[*partition] = Some(at);
        }
        let keys = match visit {
            Visit::Keys(keys) => Some(keys.len()),
            _ => None,
        };
        let window = Window::of(visit);
        let corrections = placement.corrections(&window, partitions);
        let each = placement.matching.each(found.rows.len(), found.has_source);
        let mut rows = vec![0.0; partitions.len()];
        for (at, count) in &found.rows {
            if let Some(at) = local[placement.partition[*at as usize]] {
                rows[at] += f64::from(*count) * each * corrections[at];
            }
        }
        // The author knows how many rows there are; the sample only tells where.
        if let Some(told) = instance.rows {
            let sum: f64 = rows.iter().sum();
            let even = told / rows.len() as f64;
            for rows in &mut rows {
                *rows = if sum > 0.0 { *rows * told / sum } else { even };
            }
        }
        Self { placement, instance, found, window, keys, local, count: partitions.len(), rows, corrections }
    }

    fn run(&self, shape: Shape) -> Work {
        // In the server's order: items named by key, then the index alone, then an access path.
        if let Some(work) = self.named() {
            return work;
        }
        if let Some(work) = self.by_index_alone() {
            return work;
        }
        let (path, mut work) = self.choose(shape == Shape::Sort);
        work.scans = matches!((&path, &self.window), (Path::Scan, Window::All));
        let limit = self.instance.program.rows_max().map_or(f64::INFINITY, |rows| rows as f64);
        match (shape, &path) {
            (Shape::Sort, Path::Order(order)) => self.in_order(order, limit, &mut work),
            (Shape::Stream, path) => self.stream(path, limit, &mut work),
            (Shape::Collect { incremental: true }, path) => self.distinct(path, limit, &mut work),
            (Shape::Sort, path) => {
                let rows = self.rows.iter().sum::<f64>().min(limit);
                self.everything(path, rows, &mut work);
            }
            (_, path) => self.everything(path, self.found.collected.min(limit), &mut work),
        }
        work
    }

    fn nothing(&self) -> Work {
        Work { sum: Part::default(), weights: vec![0.0; self.count], pages: 1.0, visits: 0.0, scans: false }
    }

    /// Items that the filter names by key and id are point reads.
    fn named(&self) -> Option<Work> {
        let definition = self.placement.definition.as_ref()?;
        let named = named_items(&self.instance.program, definition, None)?;
        let mut work = self.nothing();
        let mut part = Part { entries: named.items.len() as f64, ..Part::default() };
        for (at, rows) in &self.found.rows {
            part.items += 1.0;
            part.rows += f64::from(*rows);
            part.bytes += self.placement.bytes[*at as usize];
        }
        work.sum.add(&part, 1.0);
        work.weights = vec![1.0; self.count];
        work.visits = self.count as f64;
        Some(work)
    }

    /// Counts, minimum and maximum that the index alone can answer.
    fn by_index_alone(&self) -> Option<Work> {
        let mut work = self.nothing();
        let instance = self.instance;
        let way = match self.found.ways.as_slice() {
            [way] => Some(way),
            _ => None,
        };
        if instance.counts {
            let parts = match way {
                None if !instance.has_filter => {
                    let mut parts = self.scanned();
                    for part in &mut parts {
                        part.entries = part.items;
                    }
                    parts
                }
                Some(way) if way.is_exact && !way.repeats => {
                    let narrowed = self.is_narrowed(way);
                    // Entries of other keys would be counted too.
                    if !narrowed && self.keys.is_some() {
                        return None;
                    }
                    self.followed(way, narrowed)
                }
                _ => return None,
            };
            for (at, part) in parts.iter().enumerate() {
                let part = Part { entries: part.entries, ..Part::default() };
                work.sum.add(&part, 1.0);
                work.weights[at] = READ_BYTES + part.entries * Self::entry_bytes(way);
            }
            work.sum.rows = 1.0;
            work.visits = self.count as f64;
            return Some(work);
        }
        let path = instance.extreme.as_ref().filter(|_| self.keys.is_none())?;
        let is_known = match way {
            None => !instance.has_filter,
            Some(way) => way.is_exact && way.path.as_ref() == Some(path) && !way.is_point,
        };
        if !is_known {
            return None;
        }
        for (at, rows) in self.rows.iter().enumerate() {
            // Of each partition one entry and its item suffice.
            let one = rows.min(1.0);
            let bytes = one * self.mean_bytes();
            work.sum.add(&Part { entries: one, items: one, bytes, rows: 0.0 }, 1.0);
            work.weights[at] = 2.0 * READ_BYTES + one * (ENTRY_BYTES + 8.0) + bytes;
        }
        work.sum.rows = 1.0;
        work.visits = self.count as f64;
        Some(work)
    }

    /// Chooses the access path by the server's rules. Probes are charged.
    fn choose(&self, is_sorted: bool) -> (Path<'p>, Work) {
        let mut work = self.nothing();
        let found = self.found;
        let mut ways: Vec<&Way> = found.ways.iter().filter(|way| !self.names_key(way)).collect();
        // As on the server, ties do not depend on how the filter was written.
        ways.sort_by_key(|way| way.path.as_ref().map(ToString::to_string));
        let order = found.order.as_ref().filter(|_| is_sorted);
        let order = order.filter(|order| self.keys.is_none() || self.is_dense(order, &mut work));
        let order_way = order.and_then(|order| order.way).map(|way| &raw const found.ways[way]);
        let merits = ways.iter().map(|way| Merits {
            is_narrow: self.keys.is_none() || self.is_narrowed(way),
            is_selective: way.is_selective,
            is_point: way.is_point,
            is_order: order_way == Some(&raw const **way),
        });
        let mut choice = Choice::new(merits.collect(), order.is_some(), false);
        while let Some(step) = choice.next_step() {
            let (Step::Probe { way: number, count_max } | Step::ProbeAgain { way: number, count_max }) = step
            else {
                continue;
            };
            let way = ways[number];
            // The server counts in the first partition.
            let first = self.followed(way, self.is_narrowed(way)).first().map_or(0.0, |part| part.entries);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
            let probed = (first.round() as usize).min(count_max);
            choice.counted(number, probed);
            // The second count is free, but the partition that is read takes its share of the whole by all it reads.
            if matches!(step, Step::Probe { .. }) {
                work.sum.entries += probed as f64;
            }
            work.weights[0] += READ_BYTES * self.ranges(way) + probed as f64 * Self::entry_bytes(Some(way));
        }
        let path = match (choice.chosen(), order) {
            (Chosen::Way(number), _) => Path::Way(ways[number], self.is_narrowed(ways[number])),
            (Chosen::Order, Some(order)) => Path::Order(order),
            _ => Path::Scan,
        };
        (path, work)
    }

    /// Whether following the index order is cheaper than sorting all items of the keys, as the server decides it: it
    /// also reads the entries of all other keys.
    fn is_dense(&self, order: &Order, work: &mut Work) -> bool {
        let placement = self.placement;
        let first = self.local.iter().position(|local| *local == Some(0));
        let (Some(first), Some(part)) = (first, self.scanned().first().copied()) else { return false };
        let own_items = part.items.min(OWN_ITEMS_MAX);
        work.sum.entries += own_items;
        work.weights[0] += READ_BYTES + own_items * ENTRY_BYTES;
        // The server takes the rows of a page here, even if the query limits them.
        if own_items <= PAGE_ROWS {
            return false;
        }
        let each = placement.matching.each(order.items.len(), false);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        // A few at least, or chance would decide.
        let sampled = (SEQUENCE_ENTRIES / each).ceil().max(8.0) as usize;
        let there = order.items.iter().filter(|at| placement.partition[**at as usize] == first);
        let probed: Vec<bool> =
            there.take(sampled).map(|at| self.window.contains(&placement.placed[*at as usize])).collect();
        let all = (probed.len() as f64 * each).min(SEQUENCE_ENTRIES);
        let own = probed.iter().filter(|own| **own).count() as f64 / (probed.len() as f64).max(1.0) * all;
        work.sum.entries += all;
        work.weights[0] += READ_BYTES + all * ENTRY_BYTES;
        own > 0.0 && (PAGE_ROWS * all / own).floor() <= own_items * 4.0
    }

    fn is_narrowed(&self, way: &Way) -> bool {
        way.is_point && self.keys.is_some_and(|keys| keys * way.selected.ranges <= POINTS_MAX)
    }

    /// Whether a condition only repeats the items' key.
    fn names_key(&self, way: &Way) -> bool {
        let is_key = || way.path.as_ref().is_some_and(|path| self.placement.key_paths.contains(path));
        self.keys.is_some() && way.is_equal && is_key()
    }

    fn ranges(&self, way: &Way) -> f64 {
        let keys = if self.is_narrowed(way) { self.keys.unwrap_or(1) } else { 1 };
        (way.selected.ranges * keys) as f64
    }

    fn entry_bytes(way: Option<&Way>) -> f64 {
        ENTRY_BYTES + way.map_or(8, |way| way.value_bytes) as f64
    }

    fn mean_bytes(&self) -> f64 {
        let count = self.found.rows.len().max(1) as f64;
        let sum: f64 = self.found.rows.iter().map(|(at, _)| self.placement.bytes[*at as usize]).sum();
        sum / count
    }

    /// All items of the window, per partition.
    fn scanned(&self) -> Vec<Part> {
        let placement = self.placement;
        let mut parts = vec![Part::default(); self.count];
        let mut add = |found: &[u32]| {
            for at in found {
                if let Some(local) = self.local[placement.partition[*at as usize]] {
                    parts[local].items += 1.0;
                    parts[local].bytes += placement.bytes[*at as usize];
                }
            }
        };
        let none = Vec::new();
        match &self.window {
            Window::All => {
                // The totals are known, so nothing has to be counted.
                for (partition, (items, bytes)) in placement.totals.iter().enumerate() {
                    if let Some(local) = self.local[partition] {
                        (parts[local].items, parts[local].bytes) = (*items, *bytes);
                    }
                }
            }
            Window::Keys(keys) => {
                for key in keys {
                    add(placement.by_key.get(key).unwrap_or(&none));
                }
            }
            Window::Places(places) => {
                for place in places {
                    add(placement.by_first.get(place).unwrap_or(&none));
                }
            }
        }
        let sampled: f64 = parts.iter().map(|part| part.items).sum();
        let has_source = self.found.has_source && !matches!(self.window, Window::All);
        // Each item of the sample stands for several.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let each = placement.matching.each(sampled as usize, has_source);
        for ((part, rows), correction) in parts.iter_mut().zip(&self.rows).zip(&self.corrections) {
            let each = each * correction;
            (part.items, part.bytes, part.rows) = (part.items * each, part.bytes * each, *rows);
        }
        parts
    }

    /// The entries of a condition and the items that they lead to, per partition.
    fn followed(&self, way: &Way, narrowed: bool) -> Vec<Part> {
        let placement = self.placement;
        let mut parts = vec![Part::default(); self.count];
        let mut seen: HashSet<u32> = HashSet::new();
        for at in &way.selected.items {
            let place = *at as usize;
            let Some(local) = self.local[placement.partition[place]] else { continue };
            let is_inside = self.window.contains(&placement.placed[place]);
            // Reading key by key never sees entries of other keys.
            if narrowed && !is_inside {
                continue;
            }
            let part = &mut parts[local];
            part.entries += 1.0;
            if is_inside && (!way.repeats || seen.insert(*at)) {
                part.items += 1.0;
                part.bytes += placement.bytes[place];
            }
        }
        let sampled: f64 = parts.iter().map(|part| part.entries).sum();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let each = placement.matching.each(sampled as usize, self.found.has_source);
        for ((part, rows), correction) in parts.iter_mut().zip(&self.rows).zip(&self.corrections) {
            let own = *part;
            *part = Part::default();
            part.add(&own, each * correction);
            part.rows = *rows;
            if !narrowed && matches!(self.window, Window::Keys(_)) {
                // These are the entries of other keys as well.
                part.entries = own.entries * each;
            }
        }
        parts
    }

    fn parts(&self, path: &Path<'_>) -> Vec<Part> {
        match path {
            Path::Way(way, narrowed) => self.followed(way, *narrowed),
            Path::Scan | Path::Order(_) => {
                let mut parts = self.scanned();
                // Each item counts as the entry that would have led to it.
                if self.found.ways.iter().any(|way| self.names_key(way)) {
                    for part in &mut parts {
                        part.entries = part.items;
                    }
                }
                parts
            }
        }
    }

    fn weight(&self, path: &Path<'_>, part: &Part) -> f64 {
        let (ranges, entry_bytes) = match path {
            Path::Way(way, _) => (self.ranges(way), Self::entry_bytes(Some(way))),
            Path::Scan | Path::Order(_) => (1.0, 0.0),
        };
        let loads = if part.items > 0.0 { READ_BYTES } else { 0.0 };
        READ_BYTES * ranges + loads + part.entries * entry_bytes + part.bytes + part.items * ITEM_BYTES
    }

    /// Streamed rows: partition after partition, until there are enough.
    fn stream(&self, path: &Path<'_>, limit: f64, work: &mut Work) {
        let mut left = limit;
        for (at, part) in self.parts(path).iter().enumerate() {
            if left <= 0.0 {
                break;
            }
            let share = if part.rows > left { left / part.rows } else { 1.0 };
            left -= part.rows;
            let mut own = Part::default();
            own.add(part, share);
            let mut loaded = own;
            if share < 1.0 && matches!(path, Path::Way(..)) {
                // A set of entries is read before its items; others are read in batches.
                let is_set = matches!(path, Path::Way(way, _) if way.repeats);
                own.entries = if is_set { part.entries } else { batched(own.entries).min(part.entries) };
                // All items of a batch are loaded, although only those up to the last row are evaluated.
                let batch = batched(own.items).min(part.items) / part.items.max(1e-9);
                loaded = Part { items: part.items * batch, bytes: part.bytes * batch, ..own };
            }
            work.sum.add(&own, 1.0);
            work.weights[at] += self.weight(path, &loaded);
            work.visits += 1.0;
        }
        work.pages = self.pages(work.sum.rows);
        // Each further page visits a partition again.
        work.visits += work.pages - 1.0;
    }

    /// All items are needed for each page.
    fn everything(&self, path: &Path<'_>, rows: f64, work: &mut Work) {
        work.pages = self.pages(rows);
        let pages = work.pages;
        // Each page probes again.
        work.sum.entries *= pages;
        for (at, part) in self.parts(path).iter().enumerate() {
            work.sum.add(&Part { rows: 0.0, ..*part }, pages);
            work.weights[at] += self.weight(path, part);
        }
        work.sum.rows = rows;
        work.visits = pages * self.count as f64;
    }

    /// Streamed distinct rows, until there are enough.
    fn distinct(&self, path: &Path<'_>, limit: f64, work: &mut Work) {
        let all = self.found.collected;
        let wanted = all.min(limit);
        let parts = self.parts(path);
        let items: f64 = parts.iter().map(|part| part.items).sum();
        let rows: f64 = self.rows.iter().sum();
        if wanted >= all || rows <= 0.0 {
            // All values are wanted, so all items are read.
            return self.everything(path, wanted, work);
        }
        // Each further value takes more matches, the rarer the unseen values are.
        let (mut matches, mut seen) = (0.0, 0.0);
        while seen < wanted {
            matches += all / (all - seen);
            seen += 1.0;
        }
        let mut left = (matches / rows).min(1.0) * items;
        for (at, part) in parts.iter().enumerate() {
            if left <= 0.0 {
                break;
            }
            let share = if part.items > left { left / part.items } else { 1.0 };
            left -= part.items;
            let mut own = Part::default();
            own.add(part, share);
            work.sum.add(&Part { rows: 0.0, ..own }, 1.0);
            work.weights[at] += self.weight(path, &own);
            work.visits += 1.0;
        }
        work.sum.rows = wanted;
    }

    /// Items in the order of the index: of each partition, as many as may be in the page and one more.
    fn in_order(&self, order: &Order, limit: f64, work: &mut Work) {
        let placement = self.placement;
        let total: f64 = self.rows.iter().sum();
        let rows = total.min(limit);
        let page = rows.clamp(1.0, PAGE_ROWS);
        let mut own: Vec<Vec<(usize, bool)>> = vec![Vec::new(); self.count];
        // The entries of other keys are passed over, and their items are not loaded.
        let (mut inside, mut passed) = (vec![0.0; self.count], vec![0.0; self.count]);
        let is_match = |at: u32| self.found.rows.binary_search_by_key(&at, |(at, _)| *at).is_ok();
        for (rank, at) in order.items.iter().enumerate() {
            if let Some(local) = self.local[placement.partition[*at as usize]] {
                let is_inside = self.window.contains(&placement.placed[*at as usize]);
                passed[local] += 1.0;
                inside[local] += f64::from(u8::from(is_inside));
                own[local].push((rank, is_inside && is_match(*at)));
            }
        }
        let each = placement.matching.each(order.items.len(), false);
        let matched = self.found.rows.len() as f64 * each;
        // If the row limit corresponds to few sampled items, ranks are too coarse: rows are then assumed to be spread
        // evenly.
        let mean = self.mean_bytes();
        let mut best: Vec<usize> = Vec::new();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let kept = ((page / each).ceil() as usize).max(1);
        for (at, entries) in own.iter().enumerate() {
            let ranks: Vec<usize> =
                entries.iter().filter(|(_, is_match)| *is_match).map(|(rank, _)| *rank).collect();
            best.extend(&ranks);
            best.sort_unstable();
            best.truncate(kept);
            // Rows of this partition that are among the best so far, and the one that is not.
            let worst = best.last().copied().unwrap_or(usize::MAX);
            let is_full = best.len() >= kept;
            let within = ranks.iter().filter(|rank| **rank <= worst).count();
            let is_over = is_full && ranks.len() > within;
            let sampled_rows = within + usize::from(is_over);
            // The entries up to the last of these rows.
            let read = match ranks.get(sampled_rows.wrapping_sub(1)).filter(|_| is_over) {
                Some(last) => entries.partition_point(|(rank, _)| rank <= last),
                None => entries.len(),
            };
            let density = read as f64 / (sampled_rows as f64).max(1.0);
            let exact = if each > 1.0 && is_over {
                (page * within as f64 / kept as f64 + 1.0) * density
            } else {
                read as f64 * each
            };
            let entries_read = exact.min(entries.len() as f64 * each);
            let batch = batched(entries_read).min(entries.len() as f64 * each);
            let share = inside[at] / f64::max(passed[at], 1.0);
            let items = entries_read * share;
            let part = Part { entries: batch, items, bytes: items * mean, rows: 0.0 };
            work.sum.add(&part, 1.0);
            // All items of a batch are loaded.
            work.weights[at] += 2.0 * READ_BYTES + batch * (ENTRY_BYTES + 16.0 + (mean + ITEM_BYTES) * share);
            // Items without the property come first, or last if the page is not full by then.
            if order.is_forward || !is_full {
                let here = |lacking: &&u32| self.local[placement.partition[**lacking as usize]] == Some(at);
                let count = order.lacking.iter().filter(here).count() as f64 * each;
                let lacking = Part { items: count, bytes: count * mean, ..Part::default() };
                work.sum.add(&lacking, 1.0);
                work.weights[at] += lacking.bytes;
            }
        }
        work.pages = self.pages(rows);
        if work.pages > 1.0 {
            let more = (matched / total.max(1.0)).max(1.0);
            let entries: f64 = own.iter().map(|own| own.len() as f64 * each).sum();
            let share = if total > 0.0 { rows / total } else { 1.0 };
            // Of each page and partition half a batch on average is read in vain.
            let waste = (work.pages - 1.0) * self.count as f64;
            work.sum.entries = entries * share + waste * BATCHES[0] / 2.0;
            work.sum.items = entries * share + waste * more;
            work.sum.bytes = work.sum.items * mean;
        }
        work.sum.rows = rows;
        work.visits = work.pages * self.count as f64;
    }

    fn pages(&self, rows: f64) -> f64 {
        let bytes = rows * self.row_bytes();
        (rows / PAGE_ROWS).max(bytes / PAGE_BYTES).ceil().max(1.0)
    }

    fn row_bytes(&self) -> f64 {
        match self.found.row_size {
            RowSize::Items => self.mean_bytes() + SYSTEM_BYTES,
            RowSize::Bytes(bytes) => bytes,
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "estimates of counts")]
    fn charge(&self, work: &Work) -> Charge {
        let whole = |number: f64| number.round().max(0.0) as u64;
        let skipped = self.skipped();
        let query = cost::QueryWork {
            // Each page pays for its first partition below.
            partitions: whole(work.visits - work.pages + 1.0).max(1),
            index_entries: whole(work.sum.entries),
            items: whole(work.sum.items),
            item_bytes: whole(work.sum.bytes),
            output_bytes: whole((work.sum.rows - skipped).max(0.0) * self.row_bytes()),
        };
        let page = cost::query(&cost::QueryWork { partitions: 1, ..Default::default() });
        cost::query(&query) + Charge::from_hundredths(page.hundredths() * whole(work.pages - 1.0))
    }

    /// Rows that OFFSET passes over.
    fn skipped(&self) -> f64 {
        self.instance.skipped as f64
    }
}

/// The reads for this many entries, in batches.
fn batched(entries: f64) -> f64 {
    let mut read = 0.0;
    for at in 0.. {
        read += BATCHES[at.min(BATCHES.len() - 1)];
        if read >= entries {
            break;
        }
    }
    read
}

/// The keys that a read must visit.
enum Window {
    All,
    Keys(HashSet<u64>),
    Places(HashSet<u128>),
}

impl Window {
    fn of(visit: &Visit) -> Self {
        match visit {
            Visit::Everywhere => Self::All,
            Visit::Keys(keys) => Self::Keys(keys.iter().map(|key| key.hash).collect()),
            Visit::Prefixes(places) => Self::Places(places.iter().copied().collect()),
        }
    }

    fn contains(&self, placed: &Placed) -> bool {
        match self {
            Self::All => true,
            Self::Keys(keys) => keys.contains(&placed.hash),
            Self::Places(places) => places.contains(&placed.place),
        }
    }
}
