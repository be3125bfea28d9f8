//! The report: the object that `--json` prints, whose names are a promise to scripts.

use std::collections::BTreeMap;

use serde::Serialize;

/// Goes up when a field changes its meaning.
pub(crate) const FORMAT: u32 = 1;

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) format: u32,
    pub(crate) version: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) machine: Machine,
    pub(crate) user: User,
    pub(crate) processors: Processors,
    pub(crate) paths: BTreeMap<String, PathReport>,
    #[serde(serialize_with = "by_name")]
    pub(crate) facilities: Vec<Facility>,
    pub(crate) names: Names,
    pub(crate) costs: Option<Costs>,
    pub(crate) limits: Vec<Limit>,
    pub(crate) problems: Vec<Problem>,
}

/// In a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) exit: u8,
    pub(crate) works: bool,
    pub(crate) text: String,
}

/// The machine of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: Option<String>,
    pub(crate) processor: Option<String>,
    pub(crate) hypervisor: Option<String>,
    pub(crate) features: Vec<&'static str>,
    pub(crate) container: &'static str,
    pub(crate) memory_bytes: Option<u64>,
}

/// The user of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) name: Option<String>,
    /// True if it can change the machine's settings.
    pub(crate) root: bool,
    /// Of those that matter here.
    pub(crate) capabilities: Option<Vec<&'static str>>,
    pub(crate) user_namespace: Option<&'static str>,
    pub(crate) seccomp: Option<&'static str>,
    pub(crate) no_new_privs: Option<bool>,
    pub(crate) dumpable: Option<bool>,
}

/// The processors to run on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Processors {
    pub(crate) usable: Option<Vec<usize>>,
    pub(crate) online: Option<usize>,
    /// Processors' worth of time.
    pub(crate) quota: Option<f64>,
    /// True if the usable ones are hardware threads of one core.
    pub(crate) same_core: Option<bool>,
    pub(crate) shared_cache: Option<bool>,
}

/// A path, and whether messages can go by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PathReport {
    pub(crate) works: bool,
    pub(crate) why: Option<String>,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Works,
    Denied,
    /// A process that tries is killed.
    Killed,
    /// The facility could not be tried.
    Unknown,
}

/// The purpose of a facility.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Use {
    /// Nothing goes without.
    Required,
    /// Something goes slower without.
    Faster,
    /// Without, a limit or a death is noticed later.
    Safer,
    /// For memory that peers can map.
    Arenas,
    /// For peers on other hosts.
    Hosts,
    /// For translations that are kept, and pages that are moved.
    Memory,
}

/// The reason why something does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    Seccomp,
    SeccompKills,
    Yama,
    NotDumpable,
    Lsm,
    KernelTooOld,
    KernelConfig,
    Sysctl,
    Rlimit,
    Cgroup,
    Permissions,
    ReadOnly,
    Full,
    Other,
}

/// A way to allow more. At least one of the two is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Remedy {
    /// A command to run.
    pub(crate) run: Option<String>,
    /// Anything else to know or to do.
    pub(crate) note: Option<String>,
}

/// One facility that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Facility {
    #[serde(skip)]
    pub(crate) name: &'static str,
    pub(crate) status: Status,
    #[serde(rename = "use")]
    pub(crate) used: Use,
    /// Further findings of the trial.
    pub(crate) detail: Option<String>,
    pub(crate) errno: Option<String>,
    pub(crate) reason: Option<Reason>,
    pub(crate) why: Option<String>,
    pub(crate) remedies: Vec<Remedy>,
}

/// The directory in which endpoints are found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Names {
    /// True if an endpoint can listen, as things are.
    pub(crate) works: bool,
    pub(crate) directory: Option<String>,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) free_files: Option<u64>,
    pub(crate) why: Option<String>,
}

/// The costs of messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Costs {
    /// The reason why none of the figures is given.
    pub(crate) withheld: Option<String>,
    pub(crate) class: Option<&'static str>,
    /// A cache line from core to core.
    pub(crate) hop_ns: Option<f64>,
    pub(crate) cores: [Option<usize>; 2],
    pub(crate) rows: Vec<Cost>,
    pub(crate) notes: Vec<String>,
}

/// Messages of one size by one path; medians.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    pub(crate) size: usize,
    pub(crate) path: &'static str,
    pub(crate) latency_ns: Option<f64>,
    pub(crate) bandwidth_mb_s: Option<f64>,
    /// The reason why one of the figures is not given.
    pub(crate) withheld: Option<String>,
    pub(crate) class: &'static str,
    /// The path that the library chose, where it had the choice.
    pub(crate) taken: Option<String>,
}

/// The room that is left below a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Room {
    Ok,
    /// More than 70 % is used.
    Near,
    /// The limit is small to begin with.
    Low,
    Unknown,
}

/// Something that is limited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Limit {
    pub(crate) name: &'static str,
    /// The control group's directory, or `process` or `system`.
    pub(crate) scope: String,
    pub(crate) used: Option<u64>,
    /// `None`: no limit.
    pub(crate) limit: Option<u64>,
    /// The value that the limit can be raised to without privilege, if that is more.
    pub(crate) hard: Option<u64>,
    pub(crate) unit: &'static str,
    pub(crate) status: Room,
    pub(crate) remedies: Vec<Remedy>,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// Pinfold does not work.
    Fatal,
    /// It works slower than it could.
    Slower,
    /// It works; a note belongs to it.
    Warning,
}

/// Something to be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    pub(crate) what: String,
    pub(crate) severity: Severity,
    pub(crate) reason: Option<Reason>,
    pub(crate) why: Option<String>,
    pub(crate) remedies: Vec<Remedy>,
}

fn by_name<S: serde::Serializer>(all: &[Facility], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(all.iter().map(|facility| (facility.name, facility)))
}
