//! The allocator of the process, and how long it keeps memory that is free.
//!
//! Requests are made and dropped on different threads, which the system's allocator is slow at. Writing fills
//! memtables and buffers of megabytes, again and again: given back to the system after a second, as is mimalloc's
//! custom, they return as fresh pages that must be filled with zeros first. And what is given back in small pieces
//! breaks up huge pages, without which finding places in a memtable is slower. So free memory is kept longer, and
//! goes in whole huge pages (docs/performance.md).

use std::ffi::{c_int, c_long};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc.h: milliseconds until free memory is given back.
const PURGE_DELAY: c_int = 15;
const PURGE_DELAY_MS: c_long = 10_000;
/// `mi_option_allow_thp`: with 2, memory is given back in whole huge pages.
const ALLOW_THP: c_int = 43;
const WHOLE_HUGE_PAGES: c_long = 2;

#[allow(unsafe_code, reason = "the allocator's options are behind its C interface")]
mod options {
    use std::ffi::{c_int, c_long};

    unsafe extern "C" {
        /// Sets an option, unless the environment has set it.
        pub(super) safe fn mi_option_set_default(option: c_int, value: c_long);
        #[cfg(test)]
        pub(super) safe fn mi_option_get(option: c_int) -> c_long;
    }
}

/// Is to be called early. What the environment says (`MIMALLOC_PURGE_DELAY`, `MIMALLOC_ALLOW_THP`) goes first.
pub(crate) fn keep_free_memory() {
    options::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS);
    options::mi_option_set_default(ALLOW_THP, WHOLE_HUGE_PAGES);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options are known by number: another version of the allocator may have others.
    #[test]
    fn the_options_are_what_they_are_taken_for() {
        let of_environment = |name| std::env::var(name).ok().map(|text| text.parse::<c_long>().unwrap());
        let default = |name, value| of_environment(name).unwrap_or(value);
        assert_eq!(options::mi_option_get(PURGE_DELAY), default("MIMALLOC_PURGE_DELAY", 1000));
        assert_eq!(options::mi_option_get(ALLOW_THP), default("MIMALLOC_ALLOW_THP", 1));
        keep_free_memory();
        assert_eq!(options::mi_option_get(PURGE_DELAY), default("MIMALLOC_PURGE_DELAY", PURGE_DELAY_MS));
        assert_eq!(options::mi_option_get(ALLOW_THP), default("MIMALLOC_ALLOW_THP", WHOLE_HUGE_PAGES));
    }
}
