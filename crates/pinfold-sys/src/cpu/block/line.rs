//! One cache line at a time: the time that it takes to load, and its eviction.

use super::sizes::LINE;

/// The [`ticks`](crate::cpu::clock::ticks) that loading one byte takes, all else in this thread
/// waiting for it: the software cache probe of Calhoun, Fig. 5.2. The line is in the cache
/// afterwards.
///
/// 40 to 100 ns, and the time that a miss takes. `None` on processors without `rdtscp`: the
/// counter that AArch64 shows to programs may go by 40 ns a tick, too coarse for one line.
///
/// # Safety
/// `at` must be readable.
pub unsafe fn read_line_ticks(at: *const u8) -> Option<u64> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let (start, end): (u64, u64);
        if !super::support::has(super::support::RDTSCP) {
            return None;
        }
        // SAFETY: the processor has the instructions; the caller promised the byte.
        unsafe {
            std::arch::asm!(
                // Everything before is over, the stores too.
                "mfence",
                "lfence",
                "rdtscp",
                "shl rdx, 32",
                "lea {start}, [rax + rdx]",
                // Nothing begins before the clock was read.
                "lfence",
                "movzx eax, byte ptr [{at}]",
                // Waits for the load.
                "rdtscp",
                // Nothing after it is timed.
                "lfence",
                "shl rdx, 32",
                "or rax, rdx",
                at = in(reg) at,
                start = out(reg) start,
                out("rax") end,
                out("rdx") _,
                out("rcx") _,
                options(nostack, readonly),
            );
        }
        // The thread may have moved to a core whose counter is a little behind.
        Some(end.saturating_sub(start))
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = at;
        None
    }
}

/// Begins to fetch the first lines of memory that is read soon: 256 bytes. A hint; any address will
/// do.
#[inline]
pub fn fetch_start(from: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..4 {
        let line = from.wrapping_add(line * 64);
        // SAFETY: every x86-64 processor has the instruction, which changes nothing and faults
        // nowhere.
        unsafe {
            std::arch::asm!("prefetcht0 [{line}]", line = in(reg) line,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    for line in 0..4 {
        let line = from.wrapping_add(line * 64);
        // SAFETY: as above; every AArch64 processor has it.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = from;
}

/// Evicts every line of `memory` from all caches, of other cores too, to the main memory. Returns
/// `false`, and does nothing, on processors without the instruction.
///
/// About 10 ns a line, more where it was written to. The contents do not change.
pub fn flush(memory: &[u8]) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::asm;

        let (start, end) = (memory.as_ptr().addr() / LINE * LINE, memory.as_ptr_range().end.addr());
        let ordered = !super::support::has(super::support::CLFLUSHOPT);
        for line in (start..end).step_by(LINE) {
            // SAFETY: the processor has the instruction (the older one comes with SSE2); the line
            // has a byte of `memory`, and its contents do not change.
            unsafe {
                if ordered {
                    asm!("clflush [{line}]", line = in(reg) line, options(nostack, preserves_flags));
                } else {
                    asm!("clflushopt [{line}]", line = in(reg) line, options(nostack, preserves_flags));
                }
            }
        }
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { asm!("mfence", options(nostack, preserves_flags)) };
        true
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        use std::arch::asm;

        // SAFETY: Linux lets programs read the register, or reads it for them.
        let kinds = unsafe {
            let kinds: u64;
            asm!("mrs {kinds}, ctr_el0", kinds = out(reg) kinds,
                options(nomem, nostack, preserves_flags));
            kinds
        };
        // The base-2 logarithm of the words of 4 bytes in the shortest line of any data cache.
        let line = LINE.min(4 << (kinds >> 16 & 15));
        let (start, end) = (memory.as_ptr().addr() / line * line, memory.as_ptr_range().end.addr());
        for line in (start..end).step_by(line) {
            // SAFETY: Linux lets programs execute it on memory that they can read; the line has a
            // byte of `memory`, and its contents do not change.
            unsafe {
                asm!("dc civac, {line}", line = in(reg) line, options(nostack, preserves_flags))
            };
        }
        // SAFETY: every AArch64 processor has the instruction.
        unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
        true
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    {
        let _ = (memory, LINE);
        false
    }
}
