//! Counters of closed endpoints, left in a directory for the program that has started the
//! processes: `pinfold run` adds them up.
//!
//! The file of a process is `PID.jsonl`, one [`Report`] a line. A process that is killed leaves
//! none, and a forked child none for its parent's endpoints.

use std::{
    env,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process,
};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::Counters;

/// The environment variable that names the directory. Unset or empty: nothing is left.
pub const DIRECTORY: &str = "PINFOLD_REPORT";

/// The counters of one endpoint as it closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The process, as it called itself.
    pub pid: u32,
    /// The counts of its life.
    pub counters: Counters,
}

/// Appends the counters of an endpoint that closes to this process's file in [`DIRECTORY`].
/// Without that variable it costs one look at the environment.
///
/// # Errors
/// Those of opening and writing the file.
pub fn report(counters: &Counters) -> io::Result<()> {
    match env::var_os(DIRECTORY).filter(|directory| !directory.is_empty()) {
        Some(directory) => append(&directory, counters),
        None => Ok(()),
    }
}

fn append(directory: &OsString, counters: &Counters) -> io::Result<()> {
    let pid = process::id();
    let line = serde_json::to_string(&Report { pid, counters: *counters })? + "\n";
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(Path::new(directory).join(format!("{pid}.jsonl")))?;
    file.write_all(line.as_bytes())
}

/// Every report in a directory, by process; a line that is cut off or foreign is left out.
///
/// # Errors
/// Those of reading the directory and its files.
pub fn reports(directory: &Path) -> io::Result<Vec<Report>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            let text = fs::read_to_string(path)?;
            let whole = |line| serde_json::from_str::<Report>(line).ok();
            found.extend(text.lines().filter_map(whole));
        }
    }
    found.sort_by_key(|report: &Report| report.pid);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_back_and_foreign_lines_do_not() {
        let place = tempfile::tempdir().unwrap();
        let mut counters = Counters { pin_hits: 3, unexpected: u64::MAX, ..Counters::default() };
        counters.sent[2].bytes = 1 << 40;
        let directory = place.path().as_os_str().to_owned();
        append(&directory, &counters).unwrap();
        append(&directory, &Counters::default()).unwrap();
        fs::write(place.path().join("1.jsonl"), "nonsense\n{\"pid\":1}\n").unwrap();
        fs::write(place.path().join("other"), "nonsense").unwrap();
        let pid = process::id();
        let all = [counters, Counters::default()].map(|counters| Report { pid, counters });
        assert_eq!(reports(place.path()).unwrap(), all);
        assert!(reports(&place.path().join("nowhere")).is_err());
    }

    #[test]
    fn counters_of_another_version_are_read() {
        let text = r#"{"pid":7,"counters":{"pin_hits":2,"of_tomorrow":1}}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!((report.pid, report.counters.pin_hits, report.counters.sleeps), (7, 2, 0));
    }
}
