//! Memory for an engine, which is also a clock: an engine whose time is over gets no more.
//!
//! The engine looks at its own clock only at calls and jumps, some ten thousand of which may pass between two looks. An
//! operator on large operands takes long without any of them: texts of megabytes put together ten thousand times are
//! half a minute. But every operator that makes something asks for room for it, so that is where time can be called:
//! the engine is told that there is no memory, and whatever the script does with that error, it has the verdict
//! against it.

use std::sync::Arc;

use rquickjs::allocator::{Allocator, RustAllocator};

use crate::sandbox::Watch;

/// From this size on a piece costs more than a look at the clock.
const LARGE_BYTES: usize = 16 << 10;
/// How many small pieces, or kilobytes in such, pass between two looks.
const FUEL: usize = 256;

/// Rust's allocator for as long as a script has time.
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

// SAFETY: each function hands on to `RustAllocator`, which keeps the contract, or returns null, which the contract
// allows and the engine is used to: its own memory limit answers in the same way. A refused `realloc` leaves the
// old piece as it was.
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
        // SAFETY: the caller's promise is the same.
        unsafe { RustAllocator.dealloc(ptr) }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if self.may_have(new_size) {
            // SAFETY: the caller's promise is the same.
            unsafe { RustAllocator.realloc(ptr, new_size) }
        } else {
            std::ptr::null_mut()
        }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller's promise is the same.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}
