#![allow(unsafe_code)]
//! Detects Valgrind, which has one thread of the process run at a time.
//!
//! Calls that it takes for short ones it makes without letting another thread run, `munmap(2)`
//! among them. So no process may have those wait for a thread of this one. And it does not see
//! writes by other processes here: it takes such memory for never written.
//!
//! **Invariant.** The instructions that ask Valgrind change nothing on a processor.

use std::sync::OnceLock;

/// Returns whether Valgrind runs this process. Some nanoseconds.
pub fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| ask(RUNNING_ON_VALGRIND, 0, 0) != 0)
}

/// Says that somebody else has written memory of this process.
pub fn was_written(start: u64, len: u64) {
    if is_there() {
        ask(MAKE_MEM_DEFINED, start, len);
    }
}

/// Requests of `valgrind.h`, and of `memcheck.h`.
const RUNNING_ON_VALGRIND: u64 = 0x1001;
const MAKE_MEM_DEFINED: u64 = 0x4d43_0002;

/// Asks Valgrind for something; 0 where there is none.
#[cfg(target_arch = "x86_64")]
fn ask(what: u64, one: u64, two: u64) -> u64 {
    let request = [what, one, two, 0, 0, 0];
    let mut answer = 0u64;
    // SAFETY: a processor rotates a register by 128 bits in all, and exchanges one with itself.
    // Valgrind takes that for a request: it reads it and sets the answer, and leaves memory as it
    // is.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") answer,
            inout("rdi") 0u64 => _,
            options(nostack)
        );
    }
    answer
}

/// As above.
#[cfg(target_arch = "aarch64")]
fn ask(what: u64, one: u64, two: u64) -> u64 {
    let request = [what, one, two, 0, 0, 0];
    let mut answer = 0u64;
    // SAFETY: as on x86-64, with this architecture's instructions.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            inout("x3") answer,
            in("x4") request.as_ptr(),
            inout("x12") 0u64 => _,
            options(nostack)
        );
    }
    answer
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ask(_: u64, _: u64, _: u64) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_says_so_in_what_it_maps() {
        let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
        assert_eq!(super::is_there(), maps.contains("vgpreload"));
        let byte = 7u8;
        super::was_written((&raw const byte).addr() as u64, 1);
        assert_eq!(byte, 7);
    }
}
