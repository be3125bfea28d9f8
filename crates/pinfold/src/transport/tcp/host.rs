//! The marks by which two processes see that they are on one host, in one world of names.

use std::{fs, io, os::unix::fs::MetadataExt};

use sha2::{Digest, Sha256};

use crate::wire::tcp::offer::HostIdentity;

/// The namespaces (of the calling thread) that both must share for one to be reached from the other
/// as within a host. A separation by users or mounts shows when it is tried.
const NAMESPACES: [&str; 3] = ["net", "pid", "ipc"];

/// Digests of this host and this process's namespaces, from which neither can be told.
///
/// # Errors
/// Without `/proc`.
pub(crate) fn identity() -> io::Result<HostIdentity> {
    let boot = boot_id()?;
    let mut spaces = Vec::new();
    for name in NAMESPACES {
        let space = fs::metadata(format!("/proc/thread-self/ns/{name}"))?;
        spaces.extend([space.dev().to_le_bytes(), space.ino().to_le_bytes()].concat());
    }
    Ok(digest(&boot, &spaces))
}

fn digest(boot: &[u8; 16], spaces: &[u8]) -> HostIdentity {
    let digest = |of: &[u8], more: &[u8]| -> [u8; 32] {
        Sha256::new().chain_update(of).chain_update(boot).chain_update(more).finalize().into()
    };
    let (host, world) = (digest(b"pinfold host v1", &[]), digest(b"pinfold world v1", spaces));
    let (mut short, mut word) = ([0; 16], [0; 8]);
    short.copy_from_slice(&host[..16]);
    word.copy_from_slice(&world[..8]);
    HostIdentity { boot: short, word: u64::from_le_bytes(word) }
}

/// The identifier that the kernel drew when it booted. See `random(4)`.
fn boot_id() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
    Ok(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_each_time_and_is_not_what_it_is_made_of() {
        let identity = identity().unwrap();
        assert_eq!(identity, super::identity().unwrap());
        let boot = boot_id().unwrap();
        assert_ne!(identity.boot, boot);
        // Another boot is another host; another namespace is another world on it.
        let (one, other) = (digest(&boot, b"a"), digest(&boot, b"b"));
        assert!(one.boot == other.boot && one.word != other.word);
        assert_ne!(digest(&[1; 16], b"a").boot, one.boot);
        assert_ne!(digest(&[1; 16], b"a").word, one.word);
    }
}
