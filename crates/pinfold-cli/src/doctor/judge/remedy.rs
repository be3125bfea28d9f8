//! Commands that allow more: they depend on the user, and on the container that this process runs
//! in.

use super::super::{
    facts::{Facts, cgroup::Group, container::Container},
    report::Remedy,
};

/// A command.
pub(super) fn run(command: impl Into<String>) -> Remedy {
    Remedy { run: Some(command.into()), note: None }
}

/// A note: something to know or to do that is no command.
pub(super) fn note(text: impl Into<String>) -> Remedy {
    Remedy { run: None, note: Some(text.into()) }
}

/// A command, and a note on it.
pub(super) fn run_with(command: impl Into<String>, text: impl Into<String>) -> Remedy {
    Remedy { run: Some(command.into()), note: Some(text.into()) }
}

/// A limit on one process, by the names it has in various places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rlimit {
    /// In `ulimit`.
    pub(super) flag: &'static str,
    /// In `limits.conf` and for containers.
    pub(super) name: &'static str,
    /// In systemd's units.
    pub(super) unit: &'static str,
    /// A value that is enough for most; `None`: no limit.
    pub(super) enough: Option<u64>,
}

pub(super) const NOFILE: Rlimit =
    Rlimit { flag: "n", name: "nofile", unit: "LimitNOFILE", enough: Some(65536) };
pub(super) const ADDRESSES: Rlimit =
    Rlimit { flag: "v", name: "as", unit: "LimitAS", enough: None };
pub(super) const FILE_SIZE: Rlimit =
    Rlimit { flag: "f", name: "fsize", unit: "LimitFSIZE", enough: None };
pub(super) const LOCKED: Rlimit =
    Rlimit { flag: "l", name: "memlock", unit: "LimitMEMLOCK", enough: None };
pub(super) const PROCESSES: Rlimit =
    Rlimit { flag: "u", name: "nproc", unit: "LimitNPROC", enough: Some(4096) };

/// The prefix of a command that needs root.
fn sudo(facts: &Facts) -> &'static str {
    if facts.user.is_root() { "" } else { "sudo " }
}

/// Runs `command`, which takes root of the machine itself, where that is possible.
fn as_root(facts: &Facts, command: &str) -> Remedy {
    match facts.container {
        Container::None => run(format!("{}{command}", sudo(facts))),
        _ if facts.sysctl_is_writable && facts.user.is_root() => run(command),
        _ => run_with(format!("sudo {command}"), "on the host, not in the container"),
    }
}

/// Changes a setting of the kernel.
pub(super) fn sysctl(facts: &Facts, key: &str, value: impl std::fmt::Display) -> Vec<Remedy> {
    vec![as_root(facts, &format!("sysctl {key}={value}"))]
}

/// Writes a word into a file of the kernel's.
pub(super) fn tell_kernel(facts: &Facts, file: &str, word: &str) -> Vec<Remedy> {
    let remedy = as_root(facts, &format!("tee {file}"));
    let command = remedy.run.unwrap_or_default();
    vec![Remedy { run: Some(format!("echo {word} | {command}")), note: remedy.note }]
}

/// Lets these calls through.
pub(super) fn seccomp(facts: &Facts, calls: &[&str]) -> Vec<Remedy> {
    let list = if calls.is_empty() { "every call".to_owned() } else { calls.join(" ") };
    let reaches = !calls.is_empty() && calls.iter().all(|call| call.starts_with("process_vm_"));
    let of = |tool: &str| {
        let ptrace = run_with(
            format!("{tool} run --cap-add SYS_PTRACE IMAGE"),
            format!("the usual filter of {tool} then allows {list}"),
        );
        let open = run_with(
            format!("{tool} run --security-opt seccomp=unconfined IMAGE"),
            format!("or --security-opt seccomp=FILE with a profile that allows {list}"),
        );
        if reaches { vec![ptrace, open] } else { vec![open] }
    };
    match facts.container {
        Container::Docker => of("docker"),
        Container::Podman => of("podman"),
        Container::Kubernetes => {
            let open = note(format!(
                "in the pod's securityContext set seccompProfile.type to Unconfined, or to Localhost \
                 with a profile that allows {list}"
            ));
            let ptrace = note(
                "in the container's securityContext add SYS_PTRACE to \
                               capabilities.add",
            );
            if reaches { vec![ptrace, open] } else { vec![open] }
        }
        Container::Nspawn => vec![run_with(
            format!("systemd-nspawn --system-call-filter='{list}' ..."),
            "on the host",
        )],
        Container::Lxc => vec![note(format!(
            "on the host, allow {list} in the file that lxc.seccomp.profile of the container names"
        ))],
        Container::None | Container::Other => match &facts.unit {
            Some(unit) => vec![run_with(
                format!("{}systemctl edit {unit}", sudo(facts)),
                format!("and add under [Service]: SystemCallFilter={list}"),
            )],
            None => vec![note(format!(
                "whoever started this process filters its system calls: start it without that, or \
                 have {list} allowed"
            ))],
        },
    }
}

/// Gives a process a capability.
pub(super) fn capability(facts: &Facts, name: &str) -> Vec<Remedy> {
    match facts.container {
        Container::Docker => vec![run(format!("docker run --cap-add {name} IMAGE"))],
        Container::Podman => vec![run(format!("podman run --cap-add {name} IMAGE"))],
        Container::Kubernetes => {
            vec![note(format!("in the container's securityContext add {name} to capabilities.add"))]
        }
        _ => Vec::new(),
    }
}

/// Raises a limit of this process that is now `soft`, and can be raised to `hard`.
pub(super) fn rlimit(
    facts: &Facts,
    which: Rlimit,
    soft: Option<u64>,
    hard: Option<u64>,
    name: Option<&str>,
) -> Vec<Remedy> {
    let word = |value: Option<u64>| value.map_or("unlimited".to_owned(), |value| value.to_string());
    let Rlimit { flag, name: which_name, unit, enough } = which;
    let mut all = Vec::new();
    // As much as can be had at once.
    let within = match (enough, hard) {
        (Some(enough), Some(hard)) => Some(enough.min(hard)),
        (enough, hard) => enough.or(hard),
    };
    let raises = |value: Option<u64>| match (soft, value) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(soft), Some(value)) => value > soft,
    };
    if raises(within) {
        let note = "in the shell that starts the program";
        // The shell counts address space, locked memory and file sizes in KiB.
        let value = within.map(|value| if enough.is_none() { value / 1024 } else { value });
        all.push(run_with(format!("ulimit -S{flag} {}", word(value)), note));
        if hard.is_none_or(|hard| enough.is_some_and(|enough| hard >= enough))
            && facts.unit.is_none()
        {
            return all;
        }
    }
    let wanted = match (enough, soft) {
        (Some(enough), Some(soft)) => Some(enough.max(soft.saturating_mul(2))),
        _ => enough,
    };
    let (value, for_container) = (word(wanted), wanted.map_or("-1".into(), |v| v.to_string()));
    let flagged = |tool: &str| {
        run(format!("{tool} run --ulimit {which_name}={for_container}:{for_container} IMAGE"))
    };
    all.push(match (facts.container, &facts.unit) {
        (Container::Docker, _) => flagged("docker"),
        (Container::Podman, _) => flagged("podman"),
        (Container::Kubernetes, _) => note(format!(
            "have the container runtime of the node started with {unit}={}, which pods inherit",
            systemd(wanted)
        )),
        (_, Some(service)) => run_with(
            format!("{}systemctl edit {service}", sudo(facts)),
            format!("and add under [Service]: {unit}={}", systemd(wanted)),
        ),
        (_, None) if facts.user.is_root() => {
            run_with(format!("ulimit -{flag} {value}"), "in the shell that starts the program")
        }
        (_, None) => {
            let who = name.unwrap_or("'*'");
            let file = "/etc/security/limits.d/pinfold.conf";
            run_with(
                format!("echo \"{who} - {which_name} {value}\" | sudo tee {file}"),
                "and log in again",
            )
        }
    });
    all
}

fn systemd(value: Option<u64>) -> String {
    value.map_or("infinity".into(), |value| value.to_string())
}

/// The resource that a control group limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Memory,
    /// The number of bytes from which on processes are slowed down.
    MemoryHigh,
    Processes,
    Cpus,
}

/// Raises a limit of a control group.
pub(super) fn group(facts: &Facts, group: &Group, of: Of) -> Vec<Remedy> {
    let flagged = |tool: &str| {
        let flag = match of {
            Of::Memory => "--memory 8g",
            Of::MemoryHigh => "--memory-reservation 8g",
            Of::Processes => "--pids-limit 4096",
            Of::Cpus => "--cpus 2",
        };
        vec![run(format!("{tool} run {flag} IMAGE"))]
    };
    let property = match of {
        Of::Memory => "MemoryMax=8G",
        Of::MemoryHigh => "MemoryHigh=8G",
        Of::Processes => "TasksMax=4096",
        Of::Cpus => "CPUQuota=200%",
    };
    let (file, word) = match (of, group.version) {
        (Of::Memory, 1) => ("memory.limit_in_bytes", "-1"),
        (Of::Memory, _) => ("memory.max", "max"),
        (Of::MemoryHigh, _) => ("memory.high", "max"),
        (Of::Processes, _) => ("pids.max", "max"),
        (Of::Cpus, 1) => ("cpu.cfs_quota_us", "-1"),
        (Of::Cpus, _) => ("cpu.max", "max"),
    };
    match (facts.container, &facts.unit) {
        (Container::Docker, _) => flagged("docker"),
        (Container::Podman, _) => flagged("podman"),
        (Container::Kubernetes, _) => {
            let what = match of {
                Of::Cpus => "cpu",
                Of::Processes => {
                    return vec![note("have the node's kubelet allow more podPidsLimit")];
                }
                _ => "memory",
            };
            vec![note(format!("in the container's resources.limits allow more {what}"))]
        }
        (_, Some(unit)) if group.directory.ends_with(unit) => {
            vec![run(format!("{}systemctl set-property {unit} {property}", sudo(facts)))]
        }
        _ => tell_kernel(facts, &format!("{}/{file}", group.directory.display()), word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(container: Container, uid: u32) -> Facts {
        let mut facts = Facts { container, ..Facts::default() };
        facts.user.uid = uid;
        facts.user.initial_namespace = Some(true);
        facts
    }

    fn commands(all: Vec<Remedy>) -> Vec<String> {
        all.into_iter().map(|one| one.run.or(one.note).unwrap()).collect()
    }

    #[test]
    fn settings_take_root_of_the_machine() {
        let scope = |facts: &Facts| sysctl(facts, "kernel.yama.ptrace_scope", 0).remove(0);
        let plain = "sysctl kernel.yama.ptrace_scope=0";
        assert_eq!(scope(&facts(Container::None, 0)), run(plain));
        assert_eq!(scope(&facts(Container::None, 1000)), run(format!("sudo {plain}")));
        let there = scope(&facts(Container::Docker, 0));
        assert_eq!(there.run, Some(format!("sudo {plain}")));
        assert!(there.note.unwrap().contains("on the host"));
        let privileged = Facts { sysctl_is_writable: true, ..facts(Container::Docker, 0) };
        assert_eq!(scope(&privileged), run(plain));
        assert_eq!(
            commands(tell_kernel(&facts(Container::None, 7), "/sys/x", "advise")),
            ["echo advise | sudo tee /sys/x"]
        );
    }

    #[test]
    fn filters_belong_to_whoever_made_them() {
        let calls = ["process_vm_readv"];
        let docker = commands(seccomp(&facts(Container::Docker, 0), &calls));
        assert_eq!(
            docker,
            [
                "docker run --cap-add SYS_PTRACE IMAGE",
                "docker run --security-opt seccomp=unconfined IMAGE"
            ]
        );
        let podman = commands(seccomp(&facts(Container::Podman, 0), &["membarrier"]));
        assert_eq!(podman, ["podman run --security-opt seccomp=unconfined IMAGE"]);
        let mut service = facts(Container::None, 9);
        service.unit = Some("box.service".into());
        let remedy = seccomp(&service, &calls).remove(0);
        assert_eq!(remedy.run.as_deref(), Some("sudo systemctl edit box.service"));
        assert!(remedy.note.unwrap().ends_with("SystemCallFilter=process_vm_readv"));
        for container in [Container::None, Container::Kubernetes, Container::Lxc, Container::Nspawn]
        {
            assert!(!seccomp(&facts(container, 0), &calls).is_empty());
        }
    }

    #[test]
    fn limits_are_raised_where_they_can_be() {
        let raise = |facts: &Facts, soft, hard| commands(rlimit(facts, NOFILE, soft, hard, None));
        let user = facts(Container::None, 1000);
        assert_eq!(raise(&user, Some(100), Some(1 << 20)), ["ulimit -Sn 65536"]);
        assert_eq!(raise(&user, Some(100), None), ["ulimit -Sn 65536"]);
        let both = raise(&user, Some(100), Some(200));
        assert_eq!(both[0], "ulimit -Sn 200");
        assert!(both[1].contains("limits.d/pinfold.conf"), "{both:?}");
        let root = facts(Container::None, 0);
        assert_eq!(raise(&root, Some(100), Some(100)), ["ulimit -n 65536"]);
        let docker = facts(Container::Docker, 0);
        assert_eq!(
            raise(&docker, Some(100), Some(100)),
            ["docker run --ulimit nofile=65536:65536 IMAGE"]
        );
        let mut service = facts(Container::None, 0);
        service.unit = Some("box.service".into());
        let all = rlimit(&service, NOFILE, Some(100), Some(100), None);
        assert_eq!(all[0].note.as_deref(), Some("and add under [Service]: LimitNOFILE=65536"));
        let space = rlimit(&user, ADDRESSES, Some(1 << 30), None, None);
        assert_eq!(commands(space), ["ulimit -Sv unlimited"]);
    }

    #[test]
    fn groups_are_raised_where_they_were_made() {
        let box_group = Group {
            directory: "/sys/fs/cgroup/system.slice/box.service".into(),
            version: 2,
            ..Group::default()
        };
        let mut service = facts(Container::None, 9);
        service.unit = Some("box.service".into());
        let raise = |facts: &Facts, of| commands(group(facts, &box_group, of)).remove(0);
        assert_eq!(
            raise(&service, Of::Memory),
            "sudo systemctl set-property box.service MemoryMax=8G"
        );
        assert_eq!(
            raise(&facts(Container::None, 0), Of::Processes),
            "echo max | tee /sys/fs/cgroup/system.slice/box.service/pids.max"
        );
        assert_eq!(raise(&facts(Container::Docker, 0), Of::Cpus), "docker run --cpus 2 IMAGE");
    }
}
