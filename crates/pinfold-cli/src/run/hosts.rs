//! Two hosts for a run: network namespaces with a cable between them. Nothing of them has a name
//! outside: they are gone with the last process in them, however this one ends.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    process,
    time::Duration,
};

use pinfold_netns::{Link, Namespace, user, veth};

use super::{place::Place, program};

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
/// The name of the link on either host.
pub(super) const LINK: &str = "eth0";
const PREFIX: u8 = 24;
/// The largest packet, bytes.
const MTU: u32 = 1500;
/// How long the cable may take to work.
const SOON: Duration = Duration::from_secs(10);
/// Programs of util-linux that the agent runs.
const TOOLS: [&str; 2] = ["nsenter", "unshare"];

/// Two namespaces.
pub(super) struct Hosts {
    networks: [Namespace; 2],
    ends: [Link; 2],
}

/// The way to start commands on either host.
pub(super) struct Ways {
    /// A program that is called as `ssh` would be.
    pub agent: PathBuf,
    /// A program that runs a rank's with the variables of the host that it is on. Its path is
    /// another: PRRTE takes the first of that path for the program.
    pub rank: PathBuf,
    pub addresses: [String; 2],
}

impl Ways {
    /// The ways of a plan that is only shown.
    pub(super) fn shown() -> Ways {
        let addresses = ADDRESSES.map(|address| address.to_string());
        Ways { agent: "AGENT".into(), rank: "RANK".into(), addresses }
    }
}

/// Bytes and packets on the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Cable {
    /// To the second host.
    pub sent_bytes: u64,
    pub sent_packets: u64,
    /// From it.
    pub received_bytes: u64,
    pub received_packets: u64,
}

impl Hosts {
    /// Makes both. A user who is not root becomes it within a user namespace of this process, which
    /// has one thread.
    ///
    /// # Errors
    /// A text that says what is denied and how to go on.
    pub(super) fn new() -> Result<Hosts, String> {
        for tool in TOOLS {
            program::find(tool.as_ref())
                .map_err(|why| format!("--hosts 2 takes {tool} (package util-linux): {why}"))?;
        }
        if !user::is_root_inside() {
            user::become_root_inside().map_err(denied)?;
        }
        Hosts::cabled().map_err(denied)
    }

    fn cabled() -> Result<Hosts, pinfold_netns::Error> {
        let networks = [Namespace::new()?, Namespace::new()?];
        let (one, other) = veth::pair((&networks[0], LINK), (&networks[1], LINK), MTU)?;
        let ends = [one, other];
        for (end, address) in ends.iter().zip(ADDRESSES) {
            end.add_address(IpAddr::V4(address), PREFIX)?;
            end.up()?;
        }
        // If a link does not come up, the MPI says that it cannot connect. Libfabric and UCX pass
        // over one that is about to.
        for end in &ends {
            end.wait_until_running(SOON)?;
        }
        Ok(Hosts { networks, ends })
    }

    /// Writes what starting commands on them takes into `place`.
    ///
    /// # Errors
    /// A text that names the file.
    pub(super) fn prepare(&self, place: &Place) -> Result<Ways, String> {
        let addresses = ADDRESSES.map(|address| address.to_string());
        let networks = self
            .networks
            .each_ref()
            .map(|network| format!("/proc/{}/fd/{}", process::id(), network.as_fd().as_raw_fd()));
        let names = ["pinfold-1", "pinfold-2"];
        let script = agent(&addresses, &networks, names, &place.path(""));
        Ok(Ways {
            agent: place.write("agent", 0o700, script.as_bytes())?,
            rank: place.write("rank", 0o700, script.as_bytes())?,
            addresses,
        })
    }

    /// The traffic so far, if the kernel tells.
    pub(super) fn cable(&self) -> Option<Cable> {
        let counted = self.ends[0].counters().ok()?;
        Some(Cable {
            sent_bytes: counted.sent_bytes,
            sent_packets: counted.sent,
            received_bytes: counted.received_bytes,
            received_packets: counted.received,
        })
    }
}

fn denied(why: pinfold_netns::Error) -> String {
    format!("--hosts 2 takes two network namespaces, which cannot be had: {why}")
}

/// The text of a program that MPIs call in place of `ssh`: `agent [OPTIONS] HOST COMMAND...`. In a
/// file called `rank` it runs one, on whichever host it is: `rank PROGRAM...`.
fn agent(
    addresses: &[String; 2],
    networks: &[String; 2],
    names: [&str; 2],
    place: &std::path::Path,
) -> String {
    let mut text = String::from(
        "#!/bin/sh\n\
         # agent HOST COMMAND: runs a command on one of two hosts, as ssh would.\n\
         # rank PROGRAM: runs a program with the variables of the host that it is on; MPIs\n\
         # hand those of the first host on to the second.\n\
         rank=\n\
         case $0 in */rank) rank=yes ;; esac\n\
         if [ \"$rank\" ]; then\n    host=$(uname -n)\nelse\n\
         while case ${1-} in -*) true ;; *) false ;; esac; do shift; done\n\
         host=$1\nshift\nfi\n\
         case $host in\n",
    );
    for at in 0..2 {
        text += &format!(
            "{} | {}) name={} address={} network={} ;;\n",
            addresses[at], names[at], names[at], addresses[at], networks[at]
        );
    }
    text += "*) echo \"there is no host $host\" >&2; exit 255 ;;\nesac\n";
    // Else endpoints of both hosts would find each other by their names' files. Pinfold makes it.
    text += "if [ \"$rank\" ]; then\n";
    text += &format!(
        "    export PINFOLD_HOST=\"$address\" PINFOLD_DIR='{}'\"$name\"\n    exec \"$@\"\nfi\n",
        place.display()
    );
    // The name is for MPIs that tell hosts apart by it; UCX and libfabric look for links in /sys.
    text += "begin='mount -t sysfs sysfs /sys 2> /dev/null\n\
             hostname \"$0\" 2> /dev/null || echo \"$0\" > /proc/sys/kernel/hostname\n\
             exec sh -c \"$1\"'\n\
             exec nsenter --net=\"$network\" \\\n    \
             unshare --uts --mount sh -c \"$begin\" \"$name\" \"$*\"\n";
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_agent_is_a_program_of_a_shell() {
        let both = |one: &str, other: &str| [one.to_owned(), other.to_owned()];
        let text = agent(
            &both("10.77.0.1", "10.77.0.2"),
            &both("/proc/1/fd/3", "/proc/1/fd/4"),
            ["one", "two"],
            "/tmp/x/".as_ref(),
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, &text).unwrap();
        let checked = process::Command::new("sh").arg("-n").arg(file.path()).status().unwrap();
        assert!(checked.success(), "{text}");
        let run = |host: &str| {
            process::Command::new("sh")
                .arg(file.path())
                .args(["-x", host, "true"])
                .output()
                .unwrap()
        };
        let none = run("10.0.0.1");
        assert_eq!(none.status.code(), Some(255));
        assert_eq!(none.stderr, b"there is no host 10.0.0.1\n");
    }
}
