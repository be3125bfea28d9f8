//! `Access`: the rule that says which processes may connect.

use std::fmt;

use pinfold_sys::{
    socket::seqpacket::Credentials,
    user::{gid_of, name_of, uid_of},
};

use crate::{Error, Result};

/// The rule for connecting to a listening endpoint. It admits processes of the same user, and those
/// of the users and groups named here.
///
/// The rule is applied to the effective user and group, and the supplementary groups, that the
/// peer's process had when it connected, as the kernel reports them. Root is a user like any other.
///
/// A user of another user namespace that is not mapped into this one shows as the kernel's overflow
/// user, mostly 65534, "nobody": admitting that user admits all of those.
///
/// ```
/// use pinfold::{Access, Endpoint};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-access-{}", std::process::id());
/// let access = Access::same_user().user("root").group(0);
/// let endpoint = Endpoint::builder().listen(&name).access(access).build()?;
/// let itself = endpoint.connect(&name)?; // The same user is always let in.
/// assert!(endpoint.peer(itself).is_some());
/// // A user that there is not makes listening fail.
/// let nobody = Access::same_user().user("there is no such user");
/// assert!(Endpoint::builder().listen(&name).access(nobody).build().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    users: Vec<Named>,
    groups: Vec<Named>,
}

/// A user or group, by name or by number.
///
/// ```
/// use pinfold::{Access, Who};
///
/// // Names and numbers become one where they are given.
/// assert_eq!(Who::from("root"), Who::Name("root".to_owned()));
/// assert_eq!(Who::from(0), Who::Id(0));
/// // A number is taken as it is, a name is looked up.
/// assert_ne!(Access::same_user().user("root"), Access::same_user().user(0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A name, looked up once, when the rule is made.
    Name(String),
    /// A number, taken as it is.
    Id(u32),
}

impl From<&str> for Who {
    fn from(name: &str) -> Who {
        Who::Name(name.to_owned())
    }
}

impl From<String> for Who {
    fn from(name: String) -> Who {
        Who::Name(name)
    }
}

impl From<u32> for Who {
    fn from(id: u32) -> Who {
        Who::Id(id)
    }
}

/// A user or group as given, and its number if the system knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    given: Who,
    id: Option<u32>,
}

impl Named {
    fn new(given: Who, look_up: impl Fn(&str) -> Option<u32>) -> Named {
        let id = match &given {
            Who::Name(name) => look_up(name),
            Who::Id(id) => Some(*id),
        };
        Named { given, id }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.given {
            Who::Name(name) => f.write_str(name),
            Who::Id(id) => write!(f, "{id}"),
        }
    }
}

impl Access {
    /// Admits processes of this user, and no others. The default.
    pub fn same_user() -> Access {
        Access::default()
    }

    /// Also admits a user. A name that the system does not know makes listening fail.
    #[must_use]
    pub fn user(mut self, who: impl Into<Who>) -> Access {
        self.users.push(Named::new(who.into(), uid_of));
        self
    }

    /// Also admits every member of a group. A name that the system does not know makes
    /// listening fail.
    #[must_use]
    pub fn group(mut self, who: impl Into<Who>) -> Access {
        self.groups.push(Named::new(who.into(), gid_of));
        self
    }

    /// Returns whether any user other than this one may be admitted.
    pub(crate) fn admits_others(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }

    /// Number of users and of groups that the rule names.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.users.len() as u32, self.groups.len() as u32)
    }

    /// Fails if the rule names a user or group that the system does not know.
    pub(crate) fn check(&self) -> Result<()> {
        for (what, named) in [("user", &self.users), ("group", &self.groups)] {
            if let Some(unknown) = named.iter().find(|named| named.id.is_none()) {
                return Err(Error::NotAllowed {
                    name: format!("{what} {unknown}"),
                    why: format!(
                        "the access rule names a {what} this system does not know; \
                         create it, or give its number"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Checks whether a process with these credentials and supplementary groups may connect to an
    /// endpoint of user `own`. An error says why it may not, and what to change.
    pub(crate) fn admits(&self, own: u32, who: &Credentials, groups: &[u32]) -> Result<(), String> {
        let is_user = |named: &Named| named.id == Some(who.uid);
        let in_group =
            |named: &Named| named.id.is_some_and(|gid| who.gid == gid || groups.contains(&gid));
        if who.uid == own || self.users.iter().any(is_user) || self.groups.iter().any(in_group) {
            return Ok(());
        }
        Err(format!(
            "the access rule admits {self}, not {}; to admit it, add .user({}) to the rule",
            describe(who.uid),
            who.uid
        ))
    }
}

/// The rule in words.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same user")?;
        for user in &self.users {
            write!(f, ", user {user}")?;
        }
        for group in &self.groups {
            write!(f, ", group {group}")?;
        }
        Ok(())
    }
}

/// A user by number, and by name where it has one.
pub(crate) fn describe(uid: u32) -> String {
    match name_of(uid) {
        Some(name) => format!("user {uid} ({name})"),
        None => format!("user {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 1000;

    fn someone(uid: u32, gid: u32) -> Credentials {
        Credentials { pid: 77, uid, gid }
    }

    #[test]
    fn the_default_is_the_same_user_and_root_is_not_special() {
        let access = Access::same_user();
        assert!(!access.admits_others());
        access.admits(OWN, &someone(OWN, 5), &[]).unwrap();
        let why = access.admits(OWN, &someone(0, 0), &[0]).unwrap_err();
        assert_eq!(
            why,
            "the access rule admits the same user, not user 0 (root); \
             to admit it, add .user(0) to the rule"
        );
        access.admits(OWN, &someone(1001, OWN), &[OWN]).unwrap_err();
    }

    #[test]
    fn users_and_groups_are_admitted() {
        let access = Access::same_user().user(2000).group(300).user("root").group("root");
        access.check().unwrap();
        assert!(access.admits_others());
        assert_eq!(access.counts(), (2, 2));
        for (uid, gid, groups) in [
            (OWN, 9, &[][..]),
            (2000, 9, &[]),
            (0, 9, &[]),
            (9, 300, &[]),
            (9, 0, &[]),
            (9, 9, &[1, 300]),
        ] {
            access.admits(OWN, &someone(uid, gid), groups).unwrap();
        }
        let why = access.admits(OWN, &someone(4_000_000_011, 9), &[8, 2000]).unwrap_err();
        assert!(why.contains("user 2000, user root, group 300, group root"), "{why}");
        assert!(why.contains("not user 4000000011;"), "{why}");
    }

    #[test]
    fn unknown_names_admit_nobody_and_are_reported() {
        let access = Access::same_user().user("no such user").group("no such group");
        access.admits(OWN, &someone(u32::MAX - 1, 1), &[]).unwrap_err();
        let said = access.check().unwrap_err().to_string();
        assert!(said.starts_with("access to user no such user refused"), "{said}");
        assert!(Access::same_user().group("no such group").check().is_err());
    }
}
