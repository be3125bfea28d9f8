//! The filter of `seccomp(2)` that stops the wanted calls and lets all others pass.
// Invariant: the program that is handed to the kernel lives through the call, and its length is
// its own.

use std::io;

/// The mark of a stop by a call whose numbers are not this machine's.
pub(super) const FOREIGN: u32 = 1;

/// The architecture whose calls have the numbers of `libc`, an `AUDIT_ARCH_*`.
const ARCH: u32 = if cfg!(target_arch = "x86_64") {
    0xC000_003E
} else if cfg!(target_arch = "aarch64") {
    0xC000_00B7
} else {
    0
};
/// Numbers from here on are those of x32 programs.
const X32: u32 = 0x4000_0000;
/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

fn step(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// If the comparison holds the next step follows, else the one after it.
fn test(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 1, k }
}

/// The filter for these calls.
pub(super) fn program(calls: &[i64]) -> Vec<libc::sock_filter> {
    let foreign = || step(RETURN, libc::SECCOMP_RET_TRACE | FOREIGN);
    let is_ours = libc::sock_filter { code: EQUAL, jt: 1, jf: 0, k: ARCH };
    let mut steps = vec![step(LOAD, ARCH_AT), is_ours, foreign(), step(LOAD, NUMBER_AT)];
    if cfg!(target_arch = "x86_64") {
        steps.extend([test(AT_LEAST, X32), foreign()]);
    }
    for call in calls {
        steps.extend([test(EQUAL, *call as u32), step(RETURN, libc::SECCOMP_RET_TRACE)]);
    }
    steps.push(step(RETURN, libc::SECCOMP_RET_ALLOW));
    steps
}

/// Puts a filter on this thread and all that it makes. Makes system calls alone, so that it may
/// follow a fork. New privileges are given up only if the kernel asks for that.
pub(super) fn install(steps: &[libc::sock_filter]) -> Result<(), i32> {
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_ptr().cast_mut() };
    let put = || {
        let what = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the kernel reads the program, which lives through the call; it writes nothing.
        match unsafe { libc::syscall(libc::SYS_seccomp, what, 0, &raw const program) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        }
    };
    match put() {
        Err(libc::EACCES) => {
            // SAFETY: the call takes integers.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            put()
        }
        done => done,
    }
}
