//! The options of `pinfold doctor`.

use std::path::PathBuf;

/// Find out what works here, what it costs, and how to allow more
///
/// Tries everything that Pinfold uses, between processes of this user, and says of what is denied
/// by whom and which command would allow it. Then measures, in about three seconds, what each path
/// costs; on a busy machine it withholds the figures. Changes no setting.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct DoctorArgs {
    /// Try to reach the endpoint that listens at this address, and nothing else
    ///
    /// It becomes a peer of that endpoint for a moment.
    #[arg(value_name = "tcp:HOST:PORT", conflicts_with_all = ["json", "no_measure"])]
    pub(super) peer: Option<String>,

    /// The file with the key that both sides share, for a peer beyond this host
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub(super) key: Option<PathBuf>,

    /// Encrypt the connection (TLS 1.3), as that endpoint then has to, too
    #[arg(long, requires = "peer")]
    pub(super) tls: bool,

    /// Print one JSON object in place of the report
    #[arg(long)]
    json: bool,

    /// Leave out the costs
    #[arg(long)]
    no_measure: bool,

    /// Print without colours
    #[arg(long)]
    no_color: bool,
}

const AFTER: &str = "\
Examples:
  pinfold doctor
  pinfold doctor tcp:host:7000 --key FILE
  pinfold doctor tcp:host:7000 --key FILE --tls
  pinfold doctor --json --no-measure | jq '.facilities.process_vm_readv'
  pinfold doctor --json | jq -r '.problems[].remedies[].run'

Fields of --json (a field that nothing is known about is null):
  format           1
  version          of this program
  verdict          exit (see below), works, text
  machine          kernel, processor, processors, hypervisor, features, container, memory_bytes
  user             uid, gid, name, root, capabilities, user_namespace (initial or other),
                   seccomp (off, strict or filter), no_new_privs, dumpable
  processors       usable, online, quota (processors' worth of time), same_core, shared_cache
  paths            by name (inline, eager, cma): works, why
  facilities       by name: status (works, denied, killed or unknown), use (required, faster,
                   safer, arenas, hosts or memory), detail, errno, reason, why, remedies
  names            directory, path, safe, free_bytes, free_files, why
  costs            null without a measurement; else withheld (why no figure is given, such as that
                   the machine was busy, or null), class (near, far or mixed), hop_ns, cores,
                   notes, and rows: size, path (inline, eager, cma, or auto: the library chooses),
                   latency_ns, bandwidth_mb_s, withheld (why one of them is null), class, taken
                   (what auto chose)
  limits           name, scope, used, limit, hard, unit, status (ok, near, low or unknown), remedies
  problems         what, severity (fatal, slower or warning), reason, why, remedies
  remedies         run (a command), note: one of the two may be null; they are alternatives

Reasons: seccomp, seccomp_kills, yama, not_dumpable, lsm, kernel_too_old, kernel_config, sysctl,
rlimit, cgroup, permissions, read_only, full, other.

Exit status:
  0  everything works
  1  everything works, but something slower than it could, or the report could not be written
  2  the command line makes no sense
  3  Pinfold cannot work here

With an address: 0 if there is an endpoint that can be reached, else 1.";

impl DoctorArgs {
    /// Returns whether costs are measured.
    pub(crate) fn measures(&self) -> bool {
        !self.no_measure
    }

    /// Returns whether the report is for a program.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Returns whether to use colours, given whether the output is a `terminal`.
    pub(crate) fn color(&self, terminal: bool) -> bool {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|no| !no.is_empty());
        terminal && !self.no_color && !unwanted
    }
}
