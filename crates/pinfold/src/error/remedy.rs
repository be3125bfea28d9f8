//! Remedies for system calls that failed.

use std::io;

use pinfold_sys::trial::{self, Limited};
use rustix::io::Errno;

/// The beginning of `on` for a call that the peer made and reported to this side.
pub(crate) const ELSEWHERE: &str = "a call, in the process listening at ";

/// The remedy for a failed `call` on `on`, where it is known.
pub(super) fn of(call: &str, on: &str, source: &io::Error) -> Option<String> {
    let elsewhere = on.starts_with(ELSEWHERE);
    let of_whom = if elsewhere { "its " } else { "" };
    Some(match Errno::from_io_error(source)? {
        // The filters of other processes are not known.
        Errno::NOSYS if !elsewhere && trial::is_unfiltered() => {
            format!("this kernel has no {call}; it takes a newer one")
        }
        Errno::NOSYS => {
            format!(
                "have the filter of system calls (seccomp) allow {call}, or take a newer kernel"
            )
        }
        Errno::PERM if elsewhere || !trial::is_unfiltered() => {
            format!("if system calls are filtered (seccomp), have that allow {call}")
        }
        Errno::MFILE if elsewhere => "raise its ulimit -n, or have it close some".to_owned(),
        Errno::MFILE => "raise the limit on open files (ulimit -n), or close some".to_owned(),
        Errno::NFILE => "raise fs.file-max, or close some".to_owned(),
        Errno::FBIG => match trial::soft_limit(Limited::FileBytes).filter(|_| !elsewhere) {
            Some(bytes) => format!(
                "a file of this process may have {bytes} bytes, and memory that is shared is one: \
                 raise the limit (ulimit -f)"
            ),
            None => format!("raise {of_whom}limit on the size of files (ulimit -f)"),
        },
        Errno::NOMEM => format!("free memory, or raise {of_whom}limits (ulimit -v, cgroup)"),
        _ => return None,
    })
}
