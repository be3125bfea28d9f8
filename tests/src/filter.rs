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

/// From now on a process that makes one of these calls is killed.
pub fn kill(calls: &[libc::c_long]) {
    apply(calls.iter().map(|call| (*call, Vec::new())), SeccompAction::KillProcess);
}

/// From now on `call` answers `errno` if its argument number `arg`, masked with `mask`, is `value`.
pub fn deny_if(call: libc::c_long, arg: u8, mask: u64, value: u64, errno: i32) {
    deny_where(call, &[(arg, mask, value)], errno);
}

/// The same for calls where all of these `(arg, mask, value)` hold; for all calls if there are
/// none.
pub fn deny_where(call: libc::c_long, all: &[(u8, u64, u64)], errno: i32) {
    let conditions = all.iter().map(|(arg, mask, value)| {
        let compare = SeccompCmpOp::MaskedEq(*mask);
        let condition = SeccompCondition::new(*arg, SeccompCmpArgLen::Dword, compare, *value);
        condition.expect("a condition")
    });
    let conditions: Vec<_> = conditions.collect();
    let rules = match conditions.is_empty() {
        true => Vec::new(),
        false => vec![SeccompRule::new(conditions).expect("a rule")],
    };
    apply([(call, rules)], SeccompAction::Errno(errno.unsigned_abs()));
}

/// From now on a thread that makes any call but these gets a `SIGSYS`.
pub fn trap_others(calls: &[libc::c_long]) {
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    install(rules, SeccompAction::Trap, SeccompAction::Allow);
}

/// From now on a process that makes `call` is killed if its argument number `arg`, masked with
/// `mask`, is one of these values.
pub fn kill_if(call: libc::c_long, arg: u8, mask: u64, values: &[u64]) {
    let rules = values.iter().map(|value| rule(arg, SeccompCmpOp::MaskedEq(mask), *value));
    apply([(call, rules.collect())], SeccompAction::KillProcess);
}

fn rule(arg: u8, compare: SeccompCmpOp, value: u64) -> SeccompRule {
    let condition = SeccompCondition::new(arg, SeccompCmpArgLen::Dword, compare, value);
    SeccompRule::new(vec![condition.expect("a condition")]).expect("a rule")
}

/// From now on these calls answer `errno` where one of their arguments with the numbers `args` is
/// more than `value`.
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
    install(rules.into_iter().collect(), SeccompAction::Allow, answer);
}

/// A call that no rule names is answered with `otherwise`.
fn install(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    answer: SeccompAction,
) {
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
    let filter = SeccompFilter::new(rules, otherwise, answer, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter_all_threads(&program).expect("seccomp");
}

/// The calls behind the `cma` path.
pub const CMA: [libc::c_long; 2] = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];
