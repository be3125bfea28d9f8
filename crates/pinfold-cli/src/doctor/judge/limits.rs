//! Limits that are near, or low to begin with.

use super::{
    super::{
        facts::cgroup::Group,
        report::{Limit, Remedy, Room},
    },
    denial::Context,
    remedy::{self, Of},
};

const MIB: u64 = 1 << 20;

/// Bytes of locked memory: an endpoint pins at most half of its limit, and this much for one send.
const LOCKED_LOW: u64 = MIB;

/// A limit is near if more than this part of it is used.
const NEAR: f64 = 0.7;

/// Everything that is limited here.
pub(super) fn all(context: &Context<'_>) -> Vec<Limit> {
    let mut all = process(context);
    all.extend(system(context));
    for group in &context.facts.groups.all {
        all.extend(of_group(group, context));
    }
    all
}

/// One limit, as it was found.
struct Found<'a> {
    name: &'static str,
    scope: &'a str,
    used: Option<u64>,
    limit: Option<u64>,
    hard: Option<u64>,
    unit: &'static str,
    /// A limit below this is low.
    low: u64,
}

impl Found<'_> {
    fn judged(self, remedies: impl FnOnce() -> Vec<Remedy>) -> Limit {
        let Found { name, scope, used, limit, hard, unit, low } = self;
        let status = room(used, limit, low);
        let helps = matches!(status, Room::Near | Room::Low);
        let remedies = if helps { remedies() } else { Vec::new() };
        Limit { name, scope: scope.to_owned(), used, limit, hard, unit, status, remedies }
    }
}

fn room(used: Option<u64>, limit: Option<u64>, low: u64) -> Room {
    match (used, limit) {
        (_, None) => Room::Ok,
        (Some(used), Some(limit)) if used as f64 > NEAR * limit as f64 => Room::Near,
        (_, Some(limit)) if limit < low => Room::Low,
        (Some(_), Some(_)) => Room::Ok,
        (None, Some(_)) => Room::Unknown,
    }
}

fn process(context: &Context<'_>) -> Vec<Limit> {
    if context.rlimits.is_empty() {
        return Vec::new();
    }
    let used = &context.facts.used;
    let all = [
        ("open_files", remedy::NOFILE, used.descriptors, "descriptors", 256),
        ("address_space", remedy::ADDRESSES, used.address_space, "bytes", 1024 * MIB),
        ("file_size", remedy::FILE_SIZE, Some(0), "bytes", 64 * MIB),
        // Root is not counted, and the processes of other users cannot be told from here.
        ("processes", remedy::PROCESSES, None, "processes", 16),
    ];
    let mut all: Vec<Limit> = all
        .into_iter()
        .map(|(name, which, used, unit, low)| {
            let (limit, hard) = context.rlimit(which.name);
            let found = Found { name, scope: "process", used, limit, hard, unit, low };
            found.judged(|| context.raise(which))
        })
        .collect();
    // Memory that the user's other processes have pinned counts, and cannot be told from here; of a
    // process that may lock all memory none is counted.
    let (limit, hard) = context.rlimit("memlock");
    let is_free = context.facts.user.may_lock_all();
    let (used, low) = if is_free { (Some(0), 0) } else { (None, LOCKED_LOW) };
    let scope = "process";
    let locked = Found { name: "locked_memory", scope, used, limit, hard, unit: "bytes", low };
    all.push(locked.judged(|| context.raise(remedy::LOCKED)));
    all
}

fn system(context: &Context<'_>) -> Vec<Limit> {
    let facts = context.facts;
    let (settings, used) = (&facts.settings, &facts.used);
    let twice = |value: Option<u64>| value.unwrap_or(1 << 16).saturating_mul(2);
    let mut all = Vec::new();
    if settings.max_map_count.is_some() {
        let found = Found {
            name: "mappings",
            scope: "process",
            used: used.maps,
            limit: settings.max_map_count,
            hard: None,
            unit: "mappings",
            low: 1024,
        };
        let more = twice(settings.max_map_count).max(65530);
        all.push(found.judged(|| remedy::sysctl(facts, "vm.max_map_count", more)));
    }
    if settings.somaxconn.is_some() {
        let found = Found {
            name: "waiting_callers",
            scope: "network namespace",
            used: Some(0),
            limit: settings.somaxconn,
            hard: None,
            unit: "connections",
            low: 128,
        };
        all.push(found.judged(|| remedy::sysctl(facts, "net.core.somaxconn", 4096)));
    }
    if settings.file_max.is_some() {
        let found = Found {
            name: "system_files",
            scope: "system",
            used: used.files,
            limit: settings.file_max,
            hard: None,
            unit: "descriptors",
            low: 4096,
        };
        all.push(found.judged(|| remedy::sysctl(facts, "fs.file-max", twice(settings.file_max))));
    }
    all
}

fn of_group(group: &Group, context: &Context<'_>) -> Vec<Limit> {
    let scope = group.directory.display().to_string();
    let all = [
        ("memory", Of::Memory, group.memory_used, group.memory_max, "bytes", 64 * MIB),
        ("memory_high", Of::MemoryHigh, group.memory_used, group.memory_high, "bytes", 64 * MIB),
        ("tasks", Of::Processes, group.pids_used, group.pids_max, "tasks", 16),
    ];
    let judge = |(name, of, used, limit, unit, low): (_, _, _, Option<u64>, _, _)| {
        limit?;
        let found = Found { name, scope: &scope, used, limit, hard: None, unit, low };
        Some(found.judged(|| remedy::group(context.facts, group, of)))
    };
    all.into_iter().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::super::facts::Facts, *};

    #[test]
    fn rooms() {
        assert_eq!(room(Some(71), Some(100), 0), Room::Near);
        assert_eq!(room(Some(70), Some(100), 0), Room::Ok);
        assert_eq!(room(Some(1), Some(100), 101), Room::Low);
        assert_eq!(room(None, Some(100), 101), Room::Low);
        assert_eq!(room(None, Some(100), 0), Room::Unknown);
        assert_eq!(room(Some(5), None, 9), Room::Ok);
        assert_eq!(room(Some(0), Some(0), 1), Room::Low);
        assert_eq!(room(Some(1), Some(0), 0), Room::Near);
    }

    #[test]
    fn limits_have_remedies_only_where_they_are_short() {
        let mut facts = Facts::default();
        facts.used.descriptors = Some(90);
        facts.settings.max_map_count = Some(100);
        facts.groups.all.push(Group {
            directory: "/sys/fs/cgroup/x".into(),
            version: 2,
            memory_max: Some(1 << 30),
            memory_used: Some(1 << 20),
            pids_max: Some(10),
            pids_used: Some(9),
            ..Group::default()
        });
        let rlimits = [("nofile", Some(100), Some(100))];
        let context = Context { facts: &facts, filtered: None, user: None, rlimits: &rlimits };
        let all = all(&context);
        let one = |name| all.iter().find(|limit| limit.name == name).unwrap();
        assert_eq!(one("open_files").status, Room::Near);
        assert_eq!(one("address_space").status, Room::Ok);
        assert_eq!((one("memory").status, one("memory").remedies.len()), (Room::Ok, 0));
        assert_eq!(one("mappings").status, Room::Low);
        assert_eq!(one("tasks").status, Room::Near);
        let remedy = one("tasks").remedies[0].run.clone().unwrap();
        assert!(remedy.ends_with("/sys/fs/cgroup/x/pids.max"), "{remedy}");
        assert!(
            all.iter().all(|limit| limit.name != "memory_high" && limit.name != "system_files")
        );
    }
}
