//! What if: the same data, read once, under other conditions.

use crate::advise::Config;

/// Changes to a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WhatIf {
    pub throughput: Option<u32>,
    pub partitions: Option<u32>,
    /// How many times the data there would be.
    pub growth: Option<f64>,
    /// Factors on the rates of reads and writes.
    pub reads: Option<f64>,
    pub writes: Option<f64>,
}

impl WhatIf {
    /// Parses `throughput=96000,growth=10`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut what_if = Self::default();
        for change in text.split(',').map(str::trim) {
            let (name, value) = change.split_once('=').ok_or_else(|| format!("`{change}` has no value"))?;
            let wrong = || format!("`{value}` is not a value for {name}");
            let count = || value.trim().parse::<u32>().ok().filter(|count| *count > 0).ok_or_else(wrong);
            let factor = || {
                let factor = value.trim().parse::<f64>().ok();
                factor.filter(|factor| (0.0..=1e6).contains(factor)).ok_or_else(wrong)
            };
            match name.trim() {
                "throughput" => what_if.throughput = Some(count()?),
                "partitions" => what_if.partitions = Some(count()?),
                "growth" => what_if.growth = Some(factor()?.max(1e-3)),
                "reads" => what_if.reads = Some(factor()?),
                "writes" => what_if.writes = Some(factor()?),
                other => {
                    return Err(format!(
                        "`{other}` cannot be changed: expected throughput, partitions, growth, reads or writes"
                    ));
                }
            }
        }
        Ok(what_if)
    }

    /// The settings of a run with these changes. `throughput` is what the run has without them.
    pub fn apply(&self, config: &Config, throughput: u32) -> Config {
        let mut changed = config.clone();
        changed.limits.throughput = self.throughput.unwrap_or(throughput);
        changed.throughput_is_given = true;
        if self.throughput.is_some() {
            // Another throughput implies its own number of partitions.
            changed.limits.partitions = None;
        }
        changed.limits.partitions = self.partitions.or(changed.limits.partitions);
        changed.rates.reads *= self.reads.unwrap_or(1.0);
        changed.rates.writes *= self.writes.unwrap_or(1.0);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_parsed_and_applied() {
        let what_if = WhatIf::parse("throughput=96000, growth=10,reads=0.5").unwrap();
        let config = Config::default();
        let changed = what_if.apply(&config, 10_000);
        assert_eq!((changed.limits.throughput, changed.limits.partition_count()), (96_000, 16));
        assert!((changed.rates.reads - 0.5).abs() < 1e-9 && (changed.rates.writes - 1.0).abs() < 1e-9);
        assert_eq!(what_if.growth, Some(10.0));
        let fixed = WhatIf::parse("partitions=40").unwrap().apply(&config, 24_000);
        assert_eq!((fixed.limits.throughput, fixed.limits.partition_count()), (24_000, 40));
        for text in ["", "growth", "growth=x", "growth=-1", "partitions=0", "speed=2", "throughput=1.5"] {
            assert!(WhatIf::parse(text).is_err(), "{text}");
        }
    }
}
