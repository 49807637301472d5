//! Resource usage of a process and its children: CPU time, memory, disk.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Clock ticks a second in /proc; Linux has had 100 on all machines for decades.
const TICKS_PER_SECOND: f64 = 100.0;

/// The process and everything it has started.
fn family(process: u32) -> Vec<u32> {
    let mut members = vec![process];
    let mut at = 0;
    while at < members.len() {
        let path = format!("/proc/{0}/task/{0}/children", members[at]);
        let children = fs::read_to_string(path).unwrap_or_default();
        members.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        at += 1;
    }
    members
}

/// Seconds of processor time, of a family also what its ended members used.
pub fn cpu_seconds(process: u32) -> f64 {
    let of = |process: u32| {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        number(11) + number(12) + number(13) + number(14)
    };
    family(process).into_iter().map(of).sum::<f64>() / TICKS_PER_SECOND
}

/// Waits until a server has done what it put off (merging tables, writing back), for a few seconds at most: that is
/// part of its own work, and none is to pay for another's.
pub fn settle(process: u32) {
    const PAUSE: Duration = Duration::from_millis(100);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let before = cpu_seconds(process);
        std::thread::sleep(PAUSE);
        if cpu_seconds(process) - before < 0.1 * PAUSE.as_secs_f64() {
            return;
        }
    }
}

/// Has the kernel write what it put off: the disk is not to work on what was loaded while something else is measured.
pub fn write_back() {
    Command::new("sync").status().ok();
}

#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Memory {
    pub now_mb: f64,
    pub peak_mb: f64,
}

/// Resident memory; shared pages of a family are counted once for each member that is not the first.
pub fn memory(process: u32) -> Memory {
    let of = |process: u32| {
        let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()
        };
        (value("VmRSS:").unwrap_or(0.0), value("VmHWM:").unwrap_or(0.0), value("RssShmem:").unwrap_or(0.0))
    };
    let mut sum = Memory::default();
    for (at, member) in family(process).into_iter().enumerate() {
        let (now, peak, shared) = of(member);
        let twice = if at > 0 { shared } else { 0.0 };
        sum.now_mb += (now - twice).max(0.0) / 1024.0;
        sum.peak_mb += (peak - twice).max(0.0) / 1024.0;
    }
    sum
}

/// Bytes of all files below a directory.
pub fn disk_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
