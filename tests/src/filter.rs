//! Takes system calls away from a process.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// From now on the calls with these numbers answer `errno` in this process.
pub fn deny(calls: &[libc::c_long], errno: i32) {
    let rules: BTreeMap<i64, Vec<_>> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
    let answer = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter_all_threads(&program).expect("seccomp");
}

/// The calls behind the `cma` path.
pub const CMA: [libc::c_long; 2] = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];
