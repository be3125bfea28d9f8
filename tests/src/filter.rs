//! Takes system calls away from a process.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// From now on the calls with these numbers answer `errno` in this process.
pub fn deny(calls: &[libc::c_long], errno: i32) {
    apply(calls.iter().map(|call| (*call, Vec::new())), SeccompAction::Errno(errno.unsigned_abs()));
}

/// From now on whoever makes one of these calls is killed.
pub fn kill(calls: &[libc::c_long]) {
    apply(calls.iter().map(|call| (*call, Vec::new())), SeccompAction::KillProcess);
}

/// From now on `call` answers `errno` where its argument number `arg`, of what `mask` leaves, is
/// `value`.
pub fn deny_if(call: libc::c_long, arg: u8, mask: u64, value: u64, errno: i32) {
    let rules = vec![rule(arg, SeccompCmpOp::MaskedEq(mask), value)];
    apply([(call, rules)], SeccompAction::Errno(errno.unsigned_abs()));
}

/// From now on whoever makes `call` is killed where its argument number `arg`, of what `mask` leaves, is one
/// of these values.
pub fn kill_if(call: libc::c_long, arg: u8, mask: u64, values: &[u64]) {
    let rules = values.iter().map(|value| rule(arg, SeccompCmpOp::MaskedEq(mask), *value));
    apply([(call, rules.collect())], SeccompAction::KillProcess);
}

fn rule(arg: u8, compare: SeccompCmpOp, value: u64) -> SeccompRule {
    let condition = SeccompCondition::new(arg, SeccompCmpArgLen::Dword, compare, value);
    SeccompRule::new(vec![condition.expect("a condition")]).expect("a rule")
}

/// From now on these calls answer `errno` where one of their arguments with the numbers `args` is more
/// than `value`.
pub fn deny_above(calls: &[libc::c_long], args: &[u8], value: u64, errno: i32) {
    let rule = |arg: &u8| {
        let above = SeccompCmpOp::Gt;
        let condition = SeccompCondition::new(*arg, SeccompCmpArgLen::Qword, above, value);
        SeccompRule::new(vec![condition.expect("a condition")]).expect("a rule")
    };
    let rules = calls.iter().map(|call| (*call, args.iter().map(rule).collect()));
    apply(rules, SeccompAction::Errno(errno.unsigned_abs()));
}

fn apply(rules: impl IntoIterator<Item = (libc::c_long, Vec<SeccompRule>)>, answer: SeccompAction) {
    let rules: BTreeMap<i64, Vec<_>> = rules.into_iter().collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter_all_threads(&program).expect("seccomp");
}

/// The calls behind the `cma` path.
pub const CMA: [libc::c_long; 2] = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];
