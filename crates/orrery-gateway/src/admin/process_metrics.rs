//! What the process uses, under the names that Prometheus clients have agreed on, and the disk of its data. Linux only:
//! elsewhere the series are absent.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The series of this process, and of the disk that holds this directory.
pub(super) fn series(data: Option<&Path>) -> String {
    let mut out = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: f64| {
        let suffix = if kind == "counter" { "_total" } else { "" };
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{suffix} {value}")
            .expect("a String accepts every write");
    };
    if let Some(usage) = Usage::read() {
        add("process_cpu_seconds", "counter", "CPU time used, in user and system mode", usage.cpu_seconds);
        add("process_resident_memory_bytes", "gauge", "Resident memory", usage.resident_bytes);
        add("process_virtual_memory_bytes", "gauge", "Virtual memory", usage.virtual_bytes);
        add("process_threads", "gauge", "Threads", usage.threads);
    }
    if let Some(open) = fs::read_dir("/proc/self/fd").ok().map(Iterator::count) {
        // Listing them opens one more.
        add("process_open_fds", "gauge", "Open file descriptors", to_f64(open.saturating_sub(1) as u64));
    }
    if let Some(limit) = open_files_max() {
        add("process_max_fds", "gauge", "Limit of open file descriptors", limit);
    }
    if let Some((free, total)) = data.and_then(disk) {
        add("orrery_disk_free_bytes", "gauge", "Free space on the disk of the data directory", to_f64(free));
        add("orrery_disk_size_bytes", "gauge", "Size of the disk of the data directory", to_f64(total));
    }
    out
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn to_f64(number: u64) -> f64 {
    number as f64
}

/// What `/proc/self/stat` says.
struct Usage {
    cpu_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    threads: f64,
}

impl Usage {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?, PAGE_BYTES)
    }

    /// The fields after the name of the program, which may contain spaces and brackets; see proc(5).
    fn parse(text: &str, page_bytes: f64) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // The third field of proc(5) is the first here.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            threads: field(20)?,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page_bytes,
        })
    }
}

/// `USER_HZ`, which the kernel has kept at 100 on every architecture that we build for.
const TICKS_PER_SECOND: f64 = 100.0;
/// The size of a page on x64 and on most ARM64 systems.
const PAGE_BYTES: f64 = 4096.0;

fn open_files_max() -> Option<f64> {
    // The soft limit comes first, and it is the one that applies. `unlimited` is not a number, so it has no series.
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Free and total bytes.
#[cfg(unix)]
fn disk(directory: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(directory).ok()?;
    // `f_bavail` is what is free to this process; `f_bfree` includes the superuser's reserve.
    Some((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

#[cfg(not(unix))]
fn disk(_directory: &Path) -> Option<(u64, u64)> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_proc() {
        let text =
            "42 (a ) name) S 1 42 42 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 7 0 1 8192 3 18446744073709551615";
        let usage = Usage::parse(text, 4096.0).unwrap();
        assert!((usage.cpu_seconds - 3.0).abs() < 1e-9);
        assert!((usage.threads - 7.0).abs() < 1e-9);
        assert!((usage.virtual_bytes - 8192.0).abs() < 1e-9);
        assert!((usage.resident_bytes - 12_288.0).abs() < 1e-9);
    }

    #[test]
    fn this_process_has_all_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let text = series(Some(directory.path()));
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_threads",
            "process_open_fds",
            "process_max_fds",
            "orrery_disk_free_bytes",
            "orrery_disk_size_bytes",
        ] {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
            assert!(value.is_some_and(|value| value >= 0.0), "{name} is missing in\n{text}");
        }
    }
}
