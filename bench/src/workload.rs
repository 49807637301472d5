//! The operations of each workload, independent of the system that executes them.

use serde::{Deserialize, Serialize};

use crate::documents::{Random, Zipf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    PointRead,
    Create,
    Upsert,
    Batch50,
    QueryIndexed,
    OrderByTop10,
    Page100,
    CountIndexed,
    GroupBy,
    ScanUnindexed,
    ChangeFeed,
    YcsbA,
    YcsbB,
    YcsbC,
    YcsbD,
    YcsbE,
    YcsbF,
}

impl Workload {
    pub const ALL: [Self; 17] = [
        Self::PointRead,
        Self::Create,
        Self::Upsert,
        Self::Batch50,
        Self::QueryIndexed,
        Self::OrderByTop10,
        Self::Page100,
        Self::CountIndexed,
        Self::GroupBy,
        Self::ScanUnindexed,
        Self::ChangeFeed,
        Self::YcsbA,
        Self::YcsbB,
        Self::YcsbC,
        Self::YcsbD,
        Self::YcsbE,
        Self::YcsbF,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::PointRead => "point read",
            Self::Create => "durable create",
            Self::Upsert => "upsert",
            Self::Batch50 => "batch of 50 creates",
            Self::QueryIndexed => "query by indexed property",
            Self::OrderByTop10 => "ORDER BY, TOP 10",
            Self::Page100 => "page of 100, one partition key",
            Self::CountIndexed => "COUNT by indexed property",
            Self::GroupBy => "GROUP BY over all items",
            Self::ScanUnindexed => "COUNT by an unindexed condition",
            Self::ChangeFeed => "change feed, pages of 100",
            Self::YcsbA => "YCSB A (half reads, half updates)",
            Self::YcsbB => "YCSB B (95 % reads)",
            Self::YcsbC => "YCSB C (reads)",
            Self::YcsbD => "YCSB D (reads of the latest)",
            Self::YcsbE => "YCSB E (short scans)",
            Self::YcsbF => "YCSB F (read, modify, write)",
        }
    }

    /// Whether it asks for one thing only, whose answer can be repeated.
    pub fn has_one_answer(self) -> bool {
        matches!(
            self,
            Self::PointRead
                | Self::QueryIndexed
                | Self::OrderByTop10
                | Self::Page100
                | Self::CountIndexed
                | Self::GroupBy
                | Self::ScanUnindexed
                | Self::ChangeFeed
                | Self::YcsbE
        )
    }

    /// The workload whose writes are all that it writes, if it writes.
    pub fn writes_like(self) -> Option<Self> {
        match self {
            Self::Create | Self::YcsbD | Self::YcsbE => Some(Self::Create),
            Self::Upsert | Self::YcsbA | Self::YcsbB | Self::YcsbF => Some(Self::Upsert),
            Self::Batch50 => Some(Self::Batch50),
            _ => None,
        }
    }

    /// New items of one operation, on average.
    pub fn items_created(self) -> f64 {
        match self {
            Self::Create => 1.0,
            Self::Batch50 => 50.0,
            Self::YcsbD | Self::YcsbE => 0.05,
            _ => 0.0,
        }
    }

    /// Its turn in a round: first what only reads, then what changes items, then what creates some.
    pub fn turn(self) -> u8 {
        match (self.writes_like(), self.items_created() > 0.0) {
            (None, _) => 0,
            (_, false) => 1,
            (_, true) => 2,
        }
    }

    /// Whether one operation looks at every item and takes as long as thousands of others.
    pub fn looks_at_everything(self) -> bool {
        matches!(self, Self::GroupBy | Self::ScanUnindexed)
    }

    /// The workloads it is a mix of, with how often each is done in one operation. For the limit of a workload with
    /// one answer, that is itself.
    pub fn parts(self) -> &'static [(Self, f64)] {
        match self {
            Self::PointRead | Self::YcsbC => &[(Self::PointRead, 1.0)],
            Self::Create => &[(Self::Create, 1.0)],
            Self::Upsert => &[(Self::Upsert, 1.0)],
            Self::Batch50 => &[(Self::Batch50, 1.0)],
            Self::QueryIndexed => &[(Self::QueryIndexed, 1.0)],
            Self::OrderByTop10 => &[(Self::OrderByTop10, 1.0)],
            Self::Page100 => &[(Self::Page100, 1.0)],
            Self::CountIndexed => &[(Self::CountIndexed, 1.0)],
            Self::GroupBy => &[(Self::GroupBy, 1.0)],
            Self::ScanUnindexed => &[(Self::ScanUnindexed, 1.0)],
            Self::ChangeFeed => &[(Self::ChangeFeed, 1.0)],
            Self::YcsbA => &[(Self::PointRead, 0.5), (Self::Upsert, 0.5)],
            Self::YcsbB => &[(Self::PointRead, 0.95), (Self::Upsert, 0.05)],
            Self::YcsbD => &[(Self::PointRead, 0.95), (Self::Create, 0.05)],
            Self::YcsbE => &[(Self::YcsbE, 0.95), (Self::Create, 0.05)],
            Self::YcsbF => &[(Self::PointRead, 1.0), (Self::Upsert, 0.5)],
        }
    }

    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
    }
}

/// One operation, by item numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read(u64),
    /// A new item.
    Create(u64),
    /// Writes an item that exists, with a new version.
    Upsert(u64, u64),
    ReadModifyWrite(u64, u64),
    /// Fifty new items under one key, from this number on.
    Batch(u64),
    /// All items with the code of this one.
    ByCode(u64),
    Top10,
    /// Items under the key of this one, up to 100.
    Page(u64),
    /// Items of this one's key from it on, up to so many.
    Scan(u64, u64),
    /// How many items have the code of this one.
    CountByCode(u64),
    GroupBy,
    /// How many items have a property that is longer than any is.
    CountByLength,
    /// The next page of changes.
    Changes,
}

/// Operations of one connection.
pub struct Stream {
    workload: Workload,
    items: u64,
    random: Random,
    zipf: Option<Zipf>,
    /// New items are numbered apart for every connection and run.
    next_new: u64,
    first_new: u64,
}

impl Stream {
    /// `run` and `connection` make the numbers of new items unique.
    pub fn new(
        workload: Workload,
        items: u64,
        seed: u64,
        run: u64,
        connection: u64,
        zipf: Option<Zipf>,
    ) -> Self {
        let first_new = 10_000_000 + (run * 256 + connection) * 100_000;
        let random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(connection));
        Self { workload, items, random, zipf, next_new: first_new, first_new }
    }

    pub fn needs_zipf(workload: Workload) -> bool {
        use Workload::{YcsbA, YcsbB, YcsbC, YcsbD, YcsbE, YcsbF};
        matches!(workload, YcsbA | YcsbB | YcsbC | YcsbD | YcsbE | YcsbF)
    }

    fn chosen(&mut self) -> u64 {
        match &self.zipf {
            Some(zipf) => zipf.scrambled(&mut self.random),
            None => self.random.below(self.items),
        }
    }

    fn new_number(&mut self, count: u64) -> u64 {
        let number = self.next_new;
        self.next_new += count;
        number
    }

    /// Reads of the latest: new items of this connection first, then the loaded ones from the end.
    fn latest(&mut self) -> u64 {
        let rank = self.zipf.as_ref().map_or(0, |zipf| zipf.rank(&mut self.random));
        let own = self.next_new - self.first_new;
        if rank < own { self.next_new - 1 - rank } else { self.items - 1 - (rank - own) % self.items }
    }

    pub fn next(&mut self) -> Operation {
        let percent = self.random.below(100);
        let version = self.random.next() >> 12;
        match self.workload {
            Workload::PointRead | Workload::YcsbC => Operation::Read(self.chosen()),
            Workload::Create => Operation::Create(self.new_number(1)),
            Workload::Upsert => Operation::Upsert(self.chosen(), version),
            Workload::Batch50 => Operation::Batch(self.new_number(100)),
            Workload::QueryIndexed => Operation::ByCode(self.chosen()),
            Workload::OrderByTop10 => Operation::Top10,
            Workload::Page100 => Operation::Page(self.chosen()),
            Workload::CountIndexed => Operation::CountByCode(self.chosen()),
            Workload::GroupBy => Operation::GroupBy,
            Workload::ScanUnindexed => Operation::CountByLength,
            Workload::ChangeFeed => Operation::Changes,
            Workload::YcsbA if percent < 50 => Operation::Read(self.chosen()),
            Workload::YcsbB if percent < 95 => Operation::Read(self.chosen()),
            Workload::YcsbA | Workload::YcsbB => Operation::Upsert(self.chosen(), version),
            Workload::YcsbD if percent < 95 => Operation::Read(self.latest()),
            Workload::YcsbE if percent < 95 => {
                let length = 1 + self.random.below(100);
                Operation::Scan(self.chosen(), length)
            }
            Workload::YcsbD | Workload::YcsbE => Operation::Create(self.new_number(1)),
            Workload::YcsbF if percent < 50 => Operation::Read(self.chosen()),
            Workload::YcsbF => Operation::ReadModifyWrite(self.chosen(), version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(workload: Workload, count: usize) -> Vec<Operation> {
        let zipf = Stream::needs_zipf(workload).then(|| Zipf::new(1000));
        let mut stream = Stream::new(workload, 1000, 7, 3, 2, zipf);
        (0..count).map(|_| stream.next()).collect()
    }

    /// The shares of YCSB's core workloads.
    #[test]
    fn mixes_are_those_of_ycsb() {
        let writes = |workload| {
            let is_write = |operation: &Operation| {
                matches!(
                    operation,
                    Operation::Upsert(..) | Operation::Create(_) | Operation::ReadModifyWrite(..)
                )
            };
            operations(workload, 10_000).iter().filter(|operation| is_write(operation)).count()
        };
        for (workload, percent) in [
            (Workload::YcsbA, 50),
            (Workload::YcsbB, 5),
            (Workload::YcsbC, 0),
            (Workload::YcsbD, 5),
            (Workload::YcsbE, 5),
            (Workload::YcsbF, 50),
        ] {
            let writes = writes(workload) as i64;
            assert!((writes - percent * 100).abs() < 200, "{workload:?}: {writes}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_operations() {
        for workload in Workload::ALL {
            assert_eq!(operations(workload, 200), operations(workload, 200));
        }
    }

    #[test]
    fn new_items_of_connections_and_runs_do_not_meet() {
        let mut seen = std::collections::BTreeSet::new();
        for (run, connection) in [(0, 0), (0, 1), (0, 255), (1, 0), (1, 255)] {
            let mut stream = Stream::new(Workload::Create, 10, 1, run, connection, None);
            for _ in 0..1000 {
                let Operation::Create(number) = stream.next() else { panic!() };
                assert!(number >= 10_000_000 && seen.insert(number));
            }
        }
    }

    /// The number of items that a workload says it creates is what its operations create.
    #[test]
    fn what_creates_items_says_how_many() {
        for workload in Workload::ALL {
            let created: u32 = operations(workload, 10_000)
                .iter()
                .map(|operation| match operation {
                    Operation::Create(_) => 1,
                    Operation::Batch(_) => 50,
                    _ => 0,
                })
                .sum();
            let expected = workload.items_created() * 10_000.0;
            assert!((f64::from(created) - expected).abs() <= expected / 5.0, "{workload:?}: {created}");
            assert_eq!(workload.turn() == 2, created > 0, "{workload:?}");
        }
    }

    /// What a workload is made of is what its limit is made of.
    #[test]
    fn every_workload_has_parts_that_are_measured() {
        for workload in Workload::ALL {
            for (part, share) in workload.parts() {
                assert!(*share > 0.0);
                assert!(part.has_one_answer() || part.writes_like() == Some(*part), "{part:?}");
            }
        }
    }
}
