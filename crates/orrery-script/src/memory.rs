//! An allocator that enforces the time limit: a script whose time is up gets no more memory.
//!
//! The engine checks the clock only at calls and jumps, and only every ten thousand or so of them. An operator on large
//! operands takes long without any: concatenating megabyte strings ten thousand times takes half a minute. But every
//! operator that creates something allocates, so the allocator can check the clock as well. Once the time is up it
//! reports that there is no memory; whatever the script does with that error, its verdict stands.

use std::sync::Arc;

use rquickjs::allocator::{Allocator, RustAllocator};

use crate::watch::Watch;

/// An allocation of this size costs more than checking the clock.
const LARGE_BYTES: usize = 16 << 10;
/// Small allocations, or kilobytes of them, between two clock checks.
const FUEL: usize = 256;

/// Rust's allocator, for as long as the script has time left.
pub(crate) struct ClockedAllocator {
    watch: Arc<Watch>,
    fuel: usize,
}

impl ClockedAllocator {
    pub(crate) fn new(watch: Arc<Watch>) -> Self {
        Self { watch, fuel: FUEL }
    }

    fn may_have(&mut self, bytes: usize) -> bool {
        let weight = 1 + (bytes >> 10);
        if bytes < LARGE_BYTES && weight < self.fuel {
            self.fuel -= weight;
            return true;
        }
        self.fuel = FUEL;
        !self.watch.must_stop()
    }
}

// SAFETY: each function forwards to `RustAllocator`, which upholds the contract, or returns null, which the contract
// allows and the engine handles: its own memory limit does the same. A refused `realloc` leaves the old allocation
// untouched.
#[expect(unsafe_code, reason = "the trait of the engine's allocators is unsafe to implement")]
unsafe impl Allocator for ClockedAllocator {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if self.may_have(size) { RustAllocator.alloc(size) } else { std::ptr::null_mut() }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        match count.checked_mul(size) {
            Some(bytes) if self.may_have(bytes) => RustAllocator.calloc(count, size),
            _ => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller upholds the same contract.
        unsafe { RustAllocator.dealloc(ptr) }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if self.may_have(new_size) {
            // SAFETY: the caller upholds the same contract.
            unsafe { RustAllocator.realloc(ptr, new_size) }
        } else {
            std::ptr::null_mut()
        }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller upholds the same contract.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}
