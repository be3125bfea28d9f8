#![allow(unsafe_code)]
//! Whether the process is run by Valgrind, which has one thread run at a time.
//!
//! Calls that it takes for short ones it makes without letting another thread run, `munmap(2)` among
//! them. So nobody may have those wait for a thread of this process.
//!
//! **Invariant.** The instructions that ask change nothing on a processor.

use std::sync::OnceLock;

/// Whether it is. Some nanoseconds.
pub fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(ask)
}

/// `RUNNING_ON_VALGRIND` of `valgrind.h`.
#[cfg(target_arch = "x86_64")]
fn ask() -> bool {
    let request = [0x1001u64, 0, 0, 0, 0, 0];
    let mut answer = 0u64;
    // SAFETY: a processor rotates a register by 128 bits in all, and exchanges one with itself. What
    // Valgrind makes of that reads the request, and sets the answer.
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
    answer != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn ask() -> bool {
    false
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_says_so_in_what_it_maps() {
        let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
        assert_eq!(super::is_there(), maps.contains("vgpreload"));
    }
}
