//! The command line and the variables of a run. No I/O.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt::Write,
    path::PathBuf,
    process::Command,
};

use serde_json::json;

use super::{
    args::{Kind, Over, RunArgs},
    find::Mpi,
    hosts::{LINK, Ways},
    place::Place,
    provider::Provider,
};

/// Variables by which a user's environment could lead messages elsewhere.
const DIVERTING: [&str; 2] = ["FI_PROVIDER", "FI_PROVIDER_PATH"];

/// The files and addresses that a run uses.
#[derive(Default)]
pub(super) struct Means {
    /// The directory in which libfabric finds the provider.
    pub provider: Option<PathBuf>,
    /// The file with a key for connections between hosts, which the provider takes for the leave
    /// to say that it reaches them.
    pub key: Option<PathBuf>,
    /// The way to start commands on two hosts.
    pub ways: Option<Ways>,
}

/// A run: its command line, and the variables that it sets and takes away.
pub(super) struct Plan {
    words: Vec<OsString>,
    variables: BTreeMap<&'static str, OsString>,
    removed: Vec<&'static str>,
    ranks: u32,
    over: Over,
}

/// Returns whether a run takes a key: Open MPI takes no provider that cannot reach other hosts.
pub(super) fn takes_key(args: &RunArgs, kind: Kind) -> bool {
    args.over == Over::Pinfold && (kind == Kind::Openmpi || args.hosts == 2)
}

/// Refuses carriers that an MPI does not use.
///
/// # Errors
/// A text with another carrier.
pub(super) fn check(args: &RunArgs, kind: Kind) -> Result<(), String> {
    match (args.over, kind) {
        (Over::Shm, Kind::Openmpi) => Err("Open MPI takes no provider that cannot reach other \
                                           hosts, as libfabric's shm; try --over tcp, or \
                                           --over own for its own shared memory"
            .into()),
        (Over::Shm, _) if args.hosts == 2 => {
            Err("libfabric's shm provider reaches no other host; try --over tcp".into())
        }
        _ => Ok(()),
    }
}

impl Plan {
    /// The plan for `args` with that MPI.
    pub(super) fn new(args: &RunArgs, mpi: &Mpi, means: &Means) -> Plan {
        let mut variables = variables(args.over, mpi);
        let ways = means.ways.as_ref();
        if args.over == Over::Pinfold {
            if let Some(directory) = &means.provider {
                variables.insert("FI_PROVIDER_PATH", directory.into());
            }
            if let Some(key) = &means.key {
                variables.insert("PINFOLD_KEY_FILE", key.into());
                if ways.is_none() {
                    // On two hosts the agent knows it.
                    variables.insert("PINFOLD_HOST", "127.0.0.1".into());
                }
            }
        }
        if ways.is_some() {
            // The kernel is one all the same: shared memory and the loopback would do for some.
            match (args.over, mpi.kind) {
                (Over::Own, Kind::Mpich) => variables.insert("UCX_TLS", "self,tcp".into()),
                (Over::Tcp, _) => variables.insert("FI_TCP_IFACE", LINK.into()),
                _ => None,
            };
        }
        let removed = DIVERTING.into_iter().filter(|name| !variables.contains_key(name)).collect();
        let mut words = starter(args.ranks, mpi, ways);
        if let Some(ways) = ways {
            words.push(ways.rank.clone().into());
        }
        words.extend(args.words().iter().cloned());
        if let Some(ways) = ways {
            // The starter runs on the first host, by the same way as ranks on the second.
            let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            words = vec![ways.agent.clone().into(), ways.addresses[0].clone().into()];
            words.push(format!("exec {line}").into());
        }
        Plan { words, variables, removed, ranks: args.ranks, over: args.over }
    }

    /// The command, whose processes leave their counters in `place`.
    pub(super) fn command(&self, place: &Place) -> Command {
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().map_or(OsStr::new(""), OsString::as_os_str));
        command.args(words).envs(&self.variables);
        for name in &self.removed {
            command.env_remove(name);
        }
        command.env(pinfold::status::DIRECTORY, place.reports());
        command
    }

    /// A line for the one who waits.
    pub(super) fn announced(&self, mpi: &Mpi) -> String {
        let (ranks, s) = (self.ranks, if self.ranks == 1 { "" } else { "s" });
        let over = match self.over {
            Over::Pinfold => "over Pinfold",
            Over::Tcp => "over libfabric's tcp",
            Over::Shm => "over libfabric's shm",
            Over::Own => "over its own transports",
        };
        let (name, version, why) = (mpi.kind.name(), &mpi.version, &mpi.why);
        format!("{ranks} rank{s} of {name} {version} ({}, {why}), {over}", mpi.mpiexec.display())
    }

    /// The plan, for a person as a command of a shell, for a program as JSON.
    pub(super) fn shown(&self, as_json: bool, mpi: &Mpi, provider: Option<&Provider>) -> String {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        if as_json {
            let variables: BTreeMap<_, _> =
                self.variables.iter().map(|(name, value)| (*name, text(value))).collect();
            let plan = json!({
                "format": 1,
                "mpi": super::summary::mpi(mpi),
                "over": self.over.word(),
                "provider": provider.map(|found| found.file.to_string_lossy().into_owned()),
                "environment": variables,
                "removed": self.removed,
                "command": self.words.iter().map(text).collect::<Vec<_>>(),
            });
            return format!("{plan}\n");
        }
        let mut shown = format!("# {}\n", self.announced(mpi));
        for name in &self.removed {
            let _ = writeln!(shown, "unset {name}");
        }
        for (name, value) in &self.variables {
            let _ = writeln!(shown, "{name}={} \\", quoted(value));
        }
        let words: Vec<_> = self.words.iter().map(|word| quoted(word)).collect();
        shown + &words.join(" ") + "\n"
    }
}

/// The variables that lead an MPI's messages over `over`.
fn variables(over: Over, mpi: &Mpi) -> BTreeMap<&'static str, OsString> {
    let mut set = BTreeMap::new();
    if over == Over::Own {
        return set;
    }
    let mut put = |name, value: &str| set.insert(name, OsString::from(value));
    match mpi.kind {
        Kind::Mpich => {
            put("FI_PROVIDER", over.word());
            put("MPIR_CVAR_CH4_NETMOD", "ofi");
            // Else ranks of one host use MPICH's own shared memory.
            put("MPIR_CVAR_NOLOCAL", "1");
        }
        Kind::Openmpi => {
            put("OMPI_MCA_pml", "cm");
            put("OMPI_MCA_mtl", "ofi");
            put("OMPI_MCA_opal_common_ofi_provider_include", over.word());
            // Libfabric's tcp has no atomic operations, and so no one-sided ones here.
            put("OMPI_MCA_btl", if over == Over::Tcp { "self,ofi,tcp" } else { "self,ofi" });
            put("OMPI_MCA_osc", "rdma");
            // These have shared memory of their own.
            put("OMPI_MCA_coll", "^sm,han");
            if mpi.version.starts_with("4.") {
                put("OMPI_MCA_mtl_ofi_provider_include", over.word());
                put("OMPI_MCA_btl_ofi_provider_include", over.word());
            }
        }
    }
    set
}

/// The starter and its options.
fn starter(ranks: u32, mpi: &Mpi, ways: Option<&Ways>) -> Vec<OsString> {
    let mut words = vec![mpi.mpiexec.clone().into_os_string()];
    let mut add = |all: &[&str]| words.extend(all.iter().map(OsString::from));
    match mpi.kind {
        Kind::Mpich => {
            add(&["-n", &ranks.to_string()]);
            if let Some(Ways { addresses: [one, other], agent, .. }) = ways {
                add(&["-hosts", &format!("{one},{other}"), "-launcher", "ssh", "-launcher-exec"]);
                words.push(agent.into());
            }
        }
        Kind::Openmpi => {
            // More ranks than processors are the user's wish; a container's root is often the only
            // user.
            if rustix::process::geteuid().is_root() {
                add(&["--allow-run-as-root"]);
            }
            add(&["--oversubscribe", "-n", &ranks.to_string()]);
            if ways.is_some() {
                // Else the first host has them all.
                add(&["--map-by", "node"]);
            }
            if let Some(Ways { addresses: [one, other], agent, .. }) = ways {
                let slots = ranks.div_ceil(2);
                add(&["--host", &format!("{one}:{slots},{other}:{slots}")]);
                add(match mpi.version.starts_with("4.") {
                    true => &["--mca", "plm_rsh_agent"],
                    false => &["--prtemca", "plm_ssh_agent"],
                });
                words.push(agent.into());
            }
        }
    }
    words
}

/// A word as a shell reads it back.
fn quoted(word: &OsStr) -> Cow<'_, str> {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word;
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn plan(kind: Kind, version: &str, words: &str, hosts: bool) -> Plan {
        let line = Line::try_parse_from(["run"].into_iter().chain(words.split(' '))).unwrap();
        let mpi = mpi(kind, version);
        let ways = hosts.then(|| Ways {
            agent: "/run/agent".into(),
            rank: "/run/rank".into(),
            addresses: ["10.77.0.1".into(), "10.77.0.2".into()],
        });
        let key = takes_key(&line.run, kind).then(|| "/run/key".into());
        Plan::new(&line.run, &mpi, &Means { provider: Some("/lib/p".into()), key, ways })
    }

    fn mpi(kind: Kind, version: &str) -> Mpi {
        let mpiexec = "/bin/mpiexec".into();
        Mpi { kind, version: version.into(), mpiexec, why: "the first".into() }
    }

    fn line(plan: &Plan) -> String {
        let words: Vec<_> = plan.words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn mpich_is_routed() {
        let plan = plan(Kind::Mpich, "5.0.2", "-n 3 -- prog -n 1", false);
        let set: Vec<_> = plan.variables.iter().map(|(n, v)| format!("{n}={v:?}")).collect();
        let wanted = [
            r#"FI_PROVIDER="pinfold""#,
            r#"FI_PROVIDER_PATH="/lib/p""#,
            r#"MPIR_CVAR_CH4_NETMOD="ofi""#,
            r#"MPIR_CVAR_NOLOCAL="1""#,
        ];
        assert_eq!(set, wanted);
        assert_eq!(line(&plan), "/bin/mpiexec -n 3 prog -n 1");
        assert!(plan.removed.is_empty());
    }

    #[test]
    fn open_mpi_is_routed() {
        let five = plan(Kind::Openmpi, "5.0.11", "-- prog", false);
        let include = "OMPI_MCA_opal_common_ofi_provider_include";
        assert_eq!(five.variables[include], "pinfold");
        assert_eq!(five.variables["OMPI_MCA_pml"], "cm");
        assert_eq!(five.variables["PINFOLD_KEY_FILE"], "/run/key");
        assert_eq!(five.variables["PINFOLD_HOST"], "127.0.0.1");
        assert_eq!(five.variables.len(), 9);
        assert_eq!(five.removed, ["FI_PROVIDER"]);
        assert!(line(&five).ends_with("--oversubscribe -n 2 prog"), "{}", line(&five));
        assert_eq!(five.variables["OMPI_MCA_btl"], "self,ofi");
        let tcp = plan(Kind::Openmpi, "5.0.11", "--over tcp -- prog", false);
        assert_eq!(tcp.variables["OMPI_MCA_btl"], "self,ofi,tcp");
        let four = plan(Kind::Openmpi, "4.1.4", "-- prog", false);
        assert_eq!(four.variables["OMPI_MCA_mtl_ofi_provider_include"], "pinfold");
    }

    #[test]
    fn its_own_transports_are_left_alone() {
        for kind in [Kind::Mpich, Kind::Openmpi] {
            let own = plan(kind, "5", "--over own -- prog", false);
            assert!(own.variables.is_empty());
            assert_eq!(own.removed, DIVERTING);
        }
    }

    #[test]
    fn two_hosts_are_reached_by_the_agent() {
        let mpich = plan(Kind::Mpich, "5.0.2", "--hosts 2 -- prog it's", true);
        let start = "/run/agent 10.77.0.1 exec /bin/mpiexec -n 2 -hosts 10.77.0.1,10.77.0.2 ";
        assert!(line(&mpich).starts_with(start), "{}", line(&mpich));
        assert!(line(&mpich).ends_with(r"-launcher-exec /run/agent /run/rank prog 'it'\''s'"));
        assert_eq!(mpich.variables["PINFOLD_KEY_FILE"], "/run/key");
        assert!(!mpich.variables.contains_key("PINFOLD_HOST"));
        let open = plan(Kind::Openmpi, "5.0.11", "-n 3 --hosts 2 -- prog", true);
        let hosts =
            "--map-by node --host 10.77.0.1:2,10.77.0.2:2 --prtemca plm_ssh_agent /run/agent";
        assert!(line(&open).contains(hosts), "{}", line(&open));
        assert!(line(&open).ends_with(" /run/rank prog"), "{}", line(&open));
        let own = plan(Kind::Mpich, "5.0.2", "--hosts 2 --over own -- prog", true);
        assert_eq!(own.variables["UCX_TLS"], "self,tcp");
        let tcp = plan(Kind::Mpich, "5.0.2", "--hosts 2 --over tcp -- prog", true);
        assert_eq!(tcp.variables["FI_TCP_IFACE"], "eth0");
        let four = plan(Kind::Openmpi, "4.1.4", "--hosts 2 -- prog", true);
        assert!(line(&four).contains("--mca plm_rsh_agent /run/agent "), "{}", line(&four));
    }

    #[test]
    fn carriers_that_do_not_reach_are_refused() {
        let check = |words: &str, kind| {
            let line = Line::try_parse_from(["run"].into_iter().chain(words.split(' '))).unwrap();
            check(&line.run, kind)
        };
        assert!(check("--over shm -- x", Kind::Mpich).is_ok());
        assert!(check("--over shm -- x", Kind::Openmpi).unwrap_err().contains("--over own"));
        assert!(check("--over shm --hosts 2 -- x", Kind::Mpich).unwrap_err().contains("tcp"));
        assert!(check("--over tcp --hosts 2 -- x", Kind::Openmpi).is_ok());
    }

    #[test]
    fn a_plan_is_shown_as_a_command() {
        let words = "-- prog a*b";
        let plan = plan(Kind::Mpich, "5.0.2", words, false);
        let mpi = mpi(Kind::Mpich, "5.0.2");
        let shown = plan.shown(false, &mpi, None);
        assert!(shown.contains("FI_PROVIDER=pinfold \\\n"), "{shown}");
        assert!(shown.ends_with("/bin/mpiexec -n 2 prog 'a*b'\n"), "{shown}");
        let shown: serde_json::Value = serde_json::from_str(&plan.shown(true, &mpi, None)).unwrap();
        assert_eq!(shown["command"][4], "a*b");
        assert_eq!(shown["environment"]["MPIR_CVAR_NOLOCAL"], "1");
    }
}
