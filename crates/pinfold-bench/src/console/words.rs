//! The library's messages, in the words of a command.
//!
//! The library's errors advise programs: they name its calls and settings. A command has options
//! and other commands in their place. Every error of the library that a command prints goes through
//! [`Words`].

use std::{
    fmt::{self, Display, Formatter},
    io,
};

use pinfold::{Error, Gone, Ungreeted};
use rustix::io::Errno;

#[cfg(test)]
mod tests;

/// An error of the library, to be printed by a command.
pub struct Words<'a>(pub &'a Error);

impl Display for Words<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::NameInUse { name } if is_tcp(name) => write!(
                f,
                "the port of {name} is in use by another program, or by another 'pinfold recv'; \
                 choose another port, or see who has it: ss -ltnp"
            ),
            Error::NameInUse { name } => write!(
                f,
                "the name {name} is in use by another endpoint, as of another 'pinfold recv'; choose \
                 another name, or stop its owner; the other side of a transfer is 'pinfold send'"
            ),
            Error::NameGone { name } => {
                let what = if is_tcp(name) { "host and the port" } else { "name and the user" };
                write!(
                    f,
                    "no endpoint listens at {name}; start the side that listens first ('pinfold recv'), \
                     or check the {what}"
                )
            }
            Error::NoAnswer { name, patience } if is_tcp(name) => write!(
                f,
                "{name} did not answer within {patience:?}; see that the host is up, that no \
                 firewall is on the way, and that the other side runs"
            ),
            Error::NoAnswer { name, patience } => write!(
                f,
                "{name} did not answer within {patience:?}; see that the other side runs and is not \
                 stopped"
            ),
            Error::KeyNeeded { address } => write!(
                f,
                "{address} is beyond this host, which takes a key; give both sides the same \
                 with --key FILE, or use a loopback address, such as tcp:127.0.0.1:PORT"
            ),
            Error::VersionMismatch { peer, ours_min, ours_max, theirs_min, theirs_max } => write!(
                f,
                "{peer} speaks protocol versions {theirs_min} to {theirs_max}, this pinfold \
                 {ours_min} to {ours_max}; update the older side"
            ),
            Error::Greeting { peer, why, reason } => greeting(f, peer, why, *reason),
            Error::PeerGone { peer, how } => {
                write!(f, "{peer} is gone: ")?;
                gone(f, *how)
            }
            Error::NobodyLeft { last, how } => {
                write!(f, "nobody is left that could send: {last} is gone: ")?;
                gone(f, *how)
            }
            Error::LimitReached { what, limit, remedy } if !names_the_library(remedy) => {
                write!(f, "{what} is limited to {limit}; {remedy}")
            }
            Error::LimitReached { what, limit, .. } => {
                write!(f, "{what} is limited to {limit}; let others end first, or use less")
            }
            Error::NotTaken { peer, patience, .. } => write!(
                f,
                "{peer} did not take the message within {patience:?}; see that it receives"
            ),
            Error::NoMemory { wanted, left, whose } => write!(
                f,
                "no memory for {wanted} more bytes: {whose} has {left} left; raise its limit, or let \
                 others end first"
            ),
            Error::NotHandled { peer, id, .. } => {
                write!(
                    f,
                    "{peer} did not do what it was asked for (handler {id}); see what it says"
                )
            }
            Error::Undelivered { patience, left } => {
                let left: Vec<String> = left.iter().map(ToString::to_string).collect();
                let left = left.join("; ");
                write!(
                    f,
                    "not delivered within {patience:?}: {left}; see that the other side takes it"
                )
            }
            Error::ReadOnly => f.write_str("this memory can only be read"),
            Error::AlreadyAnswered => f.write_str("a request was answered twice"),
            Error::NotListening => {
                f.write_str("nobody can connect to this side: it does not listen")
            }
            Error::UnknownPeer { .. } => f.write_str("the other side has left"),
            Error::Truncated { len, capacity, .. } => {
                write!(f, "a message is {len} bytes long, and there is room for {capacity}")
            }
            Error::Os { call, on, source } => system(f, call, on, source, self.0.remedy()),
            Error::Transfer { peer, source } => {
                write!(f, "the transfer with {peer} failed: {source}{}", and(lacking(source)))
            }
            // No other error names anything of the library; a test checks that.
            other => other.fmt(f),
        }
    }
}

fn is_tcp(name: &str) -> bool {
    name.starts_with("tcp:")
}

/// Returns whether a text names calls or settings of the library.
fn names_the_library(text: &str) -> bool {
    text.contains("::") || text.contains("_max") || text.contains("_budget")
}

fn greeting(f: &mut Formatter<'_>, peer: &str, why: &str, reason: Ungreeted) -> fmt::Result {
    match reason {
        Ungreeted::OtherKey => write!(
            f,
            "{peer} has another key, or somebody changes what is said; compare the files that both \
             sides were given with --key: sha256sum FILE"
        ),
        Ungreeted::NoKey => {
            write!(f, "{peer} asks for a key; give this side the same key file with --key FILE")
        }
        Ungreeted::NoKeyThere => write!(
            f,
            "{peer} has no key, and this side has; give it the same key file with --key FILE, or \
             leave out --key here if both are on one host"
        ),
        Ungreeted::Unencrypted => {
            write!(f, "{peer} speaks over encrypted connections alone; give the command --tls here")
        }
        Ungreeted::UnencryptedThere => write!(
            f,
            "{peer} does not encrypt, and this side was given --tls; give the command --tls there, too"
        ),
        Ungreeted::Full(peers) => {
            write!(f, "{peer} may have {peers} peers and has them; try again when one has left")
        }
        _ => f.write_str(why),
    }
}

fn gone(f: &mut Formatter<'_>, how: Gone) -> fmt::Result {
    match how {
        Gone::Forgot => {
            f.write_str("the connection with its host broke, and it did not wait for another")
        }
        how => how.fmt(f),
    }
}

/// A system call that failed. The library's advice is given if a command has none of its own.
fn system(
    f: &mut Formatter<'_>,
    call: &str,
    on: &str,
    source: &io::Error,
    remedy: Option<String>,
) -> fmt::Result {
    let host = || on.strip_prefix("tcp:").and_then(|on| on.rsplit_once(':')).map_or(on, |on| on.0);
    if call == "getaddrinfo" {
        let host = host();
        return match source.kind() {
            io::ErrorKind::NotFound => {
                write!(f, "{on}: {source}; check the name: getent hosts {host}")
            }
            _ => write!(f, "{on}: {source}; see which are asked: cat /etc/resolv.conf"),
        };
    }
    let advice = match (call, Errno::from_io_error(source)) {
        ("bind", Some(Errno::ACCESS)) => Some(
            "ports below 1024 are for root; choose a higher one, or have root run: \
             sysctl net.ipv4.ip_unprivileged_port_start=PORT"
                .to_owned(),
        ),
        ("bind", Some(Errno::ADDRNOTAVAIL)) => Some(
            "this host has no such address; see which it has: ip address; 0.0.0.0 stands for all \
             of them"
                .to_owned(),
        ),
        ("connect", Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN)) => {
            Some(format!("see which way leads there: ip route get {}", host()))
        }
        ("connect", Some(Errno::TIMEDOUT | Errno::HOSTDOWN)) => {
            Some("see that the host is up, and that no firewall is on the way".to_owned())
        }
        ("connect", Some(Errno::ACCESS | Errno::PERM)) => {
            let filter = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
            Some(format!("a firewall or a route does not allow it{filter}"))
        }
        ("mkdirat", Some(Errno::ACCESS | Errno::NOENT | Errno::ROFS)) => Some(
            "names are kept in that directory; choose another with PINFOLD_DIR, or see who may \
             write above it: namei -l"
                .to_owned(),
        ),
        _ => remedy,
    };
    let on = if on == "the endpoint" { String::new() } else { format!("{on}: ") };
    write!(f, "{on}{call}: {source}{}", and(advice))
}

/// The resource of which there is too little, and a remedy.
fn lacking(source: &io::Error) -> Option<String> {
    match Errno::from_io_error(source)? {
        Errno::MFILE => {
            Some("this process may open no more files; raise the limit: ulimit -n".to_owned())
        }
        Errno::NFILE => Some("this host may open no more files; raise fs.file-max".to_owned()),
        _ => None,
    }
}

fn and(advice: Option<String>) -> String {
    advice.map(|advice| format!("; {advice}")).unwrap_or_default()
}
