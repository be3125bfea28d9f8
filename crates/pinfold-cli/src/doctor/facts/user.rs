//! The identity and the permissions of this process.

use super::{Root, field};

/// `CAP_SYS_ADMIN` and `CAP_SYS_PTRACE`, as bits.
pub(crate) const SYS_ADMIN: u64 = 1 << 21;
/// See [`SYS_ADMIN`].
pub(crate) const SYS_PTRACE: u64 = 1 << 19;

/// `CAP_IPC_LOCK`.
const IPC_LOCK: u64 = 1 << 14;

/// This process's user and rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Effective ones, as bits.
    pub(crate) capabilities: Option<u64>,
    pub(crate) no_new_privs: Option<bool>,
    /// As of `/proc/self/status`: 0, 1 or 2.
    pub(crate) seccomp: Option<i32>,
    /// True if the user namespace is the machine's own.
    pub(crate) initial_namespace: Option<bool>,
    /// The label that a security module gives this process.
    pub(crate) label: Option<String>,
}

impl User {
    pub(super) fn read(root: Root<'_>) -> User {
        let status = root.text("/proc/self/status").unwrap_or_default();
        let map = root.text("/proc/self/uid_map");
        User {
            uid: pinfold_sys::user::uid(),
            gid: pinfold_sys::user::gid(),
            capabilities: field(&status, "CapEff")
                .and_then(|bits| u64::from_str_radix(bits, 16).ok()),
            no_new_privs: field(&status, "NoNewPrivs").map(|value| value == "1"),
            seccomp: field(&status, "Seccomp").and_then(|value| value.parse().ok()),
            initial_namespace: map.map(|map| is_whole(&map)),
            label: root
                .text("/proc/self/attr/current")
                .map(|label| label.trim_end_matches('\0').to_owned())
                .filter(|label| !label.is_empty() && !label.starts_with("unconfined")),
        }
    }

    /// Returns whether this process can change the machine's settings: it is root, and not only in
    /// a namespace.
    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
            && self.initial_namespace != Some(false)
            && self.capabilities.is_none_or(|all| all & SYS_ADMIN != 0)
    }

    /// It may lock any amount of memory: `CAP_IPC_LOCK`, and not only in a namespace.
    pub(crate) fn may_lock_all(&self) -> bool {
        self.initial_namespace != Some(false)
            && self.capabilities.map_or(self.uid == 0, |all| all & IPC_LOCK != 0)
    }

    /// Returns whether it has `capability`, as far as is known.
    pub(crate) fn may(&self, capability: u64) -> bool {
        self.capabilities.is_some_and(|all| all & capability != 0)
    }
}

/// Returns whether a map of user ids is that of a namespace which maps all of them to themselves.
fn is_whole(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::{super::tests::model, *};

    #[test]
    fn status_is_read() {
        let root = model(&[
            (
                "/proc/self/status",
                "Name:\tx\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n",
            ),
            ("/proc/self/uid_map", "         0     100000      65536\n"),
            ("/proc/self/attr/current", "docker-default (enforce)\n"),
        ]);
        let user = User::read(Root(root.path()));
        assert_eq!((user.no_new_privs, user.seccomp), (Some(true), Some(2)));
        assert_eq!(user.initial_namespace, Some(false));
        assert_eq!(user.label.as_deref(), Some("docker-default (enforce)"));
        assert!(!user.may(SYS_ADMIN) && !user.may(SYS_PTRACE) && !user.is_root());
        assert!(!user.may_lock_all());
    }

    #[test]
    fn memory_is_locked_by_right_of_the_machine() {
        let user = |uid, capabilities, initial_namespace| User {
            uid,
            capabilities,
            initial_namespace,
            ..User::default()
        };
        assert!(user(0, Some(!0), Some(true)).may_lock_all());
        assert!(user(7, Some(IPC_LOCK), None).may_lock_all());
        assert!(user(0, None, None).may_lock_all());
        // This is so in most containers.
        assert!(!user(0, Some(0xa804_25fb), Some(true)).may_lock_all());
        assert!(!user(0, Some(!0), Some(false)).may_lock_all());
        assert!(!user(7, None, None).may_lock_all());
    }

    #[test]
    fn the_first_namespace_maps_everybody() {
        assert!(is_whole("         0          0 4294967295"));
        assert!(!is_whole("0 1000 1"));
        assert!(!is_whole(""));
    }
}
