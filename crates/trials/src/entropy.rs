//! The randomness of this process, by seed. Hash maps, `select!` and back-off draw from the kernel through libc's `getrandom`;
//! here it is answered from the seed, so that the same seed gives the same run byte for byte. Only in this binary.

use std::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);

/// From here on everything that is drawn follows from `seed`.
pub fn seed(seed: u64) {
    STATE.store(seed ^ 0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
}

/// SplitMix64: one addition and a mix, so that it needs no lock.
fn next() -> u64 {
    let state = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Stands in for libc's: the linker takes a symbol of the program before one of a library.
///
/// # Safety
/// As libc's: `buffer` points to `length` bytes that may be written.
#[allow(unsafe_code, reason = "libc's interface; nothing else can be interposed")]
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: the caller vouches for the buffer, as for libc's function.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    for chunk in bytes.chunks_mut(8) {
        let random = next().to_le_bytes();
        for (byte, drawn) in chunk.iter_mut().zip(random) {
            *byte = drawn;
        }
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}
