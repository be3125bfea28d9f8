//! `Address`: the name of an endpoint, `local:NAME` or `local:USER/NAME`.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// Length of the longest name, and of the longest user, bytes.
const PART_MAX: usize = 64;

/// The address of an endpoint on this host.
///
/// `local:NAME` is an endpoint of this user, `local:USER/NAME` one of the named user, which may
/// also be given by number. A name is 1 to 64 characters out of `A-Z a-z 0-9 . _ -` and does not
/// begin with a dot.
///
/// # Errors
/// Parsing fails with [`Error::BadAddress`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    user: Option<String>,
    name: String,
}

/// Prefix of the names under which peers that came over a connection first reach an endpoint.
const SAME_HOST: &str = "beside-";

/// Returns whether `name` is such a name, which only Pinfold gives.
pub(crate) fn is_same_host(name: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.strip_prefix(SAME_HOST).is_some_and(|id| id.len() == 32 && id.bytes().all(digit))
}

impl Address {
    /// The address under which peers that came over a connection first reach endpoint `id` of this
    /// user.
    pub(crate) fn same_host(id: u128) -> Address {
        Address { user: None, name: format!("{SAME_HOST}{id:032x}") }
    }

    /// The endpoint's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the user that the endpoint belongs to, `own` if none is named.
    pub(crate) fn owner(&self, own: u32) -> Result<u32> {
        let Some(user) = &self.user else { return Ok(own) };
        pinfold_sys::user::uid_of(user)
            .or_else(|| user.parse().ok())
            .ok_or_else(|| bad(&self.to_string(), "there is no such user"))
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        let Some(rest) = text.strip_prefix("local:") else {
            return Err(bad(text, "it does not begin with \"local:\""));
        };
        let (user, name) = match rest.split_once('/') {
            Some((user, name)) => (Some(user), name),
            None => (None, rest),
        };
        if let Some(user) = user {
            // The system's own rules for user names vary; none allows these.
            let odd = |char: char| char == '/' || char.is_whitespace() || char.is_control();
            if user.is_empty() || user.len() > PART_MAX || user.contains(odd) {
                return Err(bad(text, "the user before the slash cannot be one"));
            }
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() {
            return Err(bad(text, "the name is empty"));
        }
        if name.len() > PART_MAX {
            return Err(bad(text, "the name is longer than 64 characters"));
        }
        if name.starts_with('.') {
            return Err(bad(text, "the name begins with a dot"));
        }
        if !name.bytes().all(fits) {
            return Err(bad(text, "the name has characters other than A-Z a-z 0-9 . _ -"));
        }
        Ok(Address { user: user.map(str::to_owned), name: name.to_owned() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "local:{user}/{}", self.name),
            None => write!(f, "local:{}", self.name),
        }
    }
}

fn bad(address: &str, why: &'static str) -> Error {
    Error::BadAddress { address: address.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn good_addresses() {
        let address: Address = "local:box".parse().unwrap();
        assert_eq!((address.user.as_deref(), address.name()), (None, "box"));
        assert_eq!(address.owner(7).unwrap(), 7);
        let address: Address = "local:root/a.B-9_".parse().unwrap();
        assert_eq!((address.user.as_deref(), address.name()), (Some("root"), "a.B-9_"));
        assert_eq!(address.owner(7).unwrap(), 0);
        let address: Address = "local:4000000011/x".parse().unwrap();
        assert_eq!(address.owner(7).unwrap(), 4_000_000_011);
        let long = format!("local:{}", "n".repeat(64));
        assert_eq!(long.parse::<Address>().unwrap().to_string(), long);
    }

    #[test]
    fn bad_addresses_say_why() {
        let long = format!("local:{}", "n".repeat(65));
        for (text, why) in [
            ("box", "it does not begin"),
            ("", "it does not begin"),
            ("tcp:box", "it does not begin"),
            ("local:", "the name is empty"),
            ("local:root/", "the name is empty"),
            ("local:/box", "the user"),
            ("local:a b/box", "the user"),
            ("local:a/b/c", "the name has characters"),
            ("local:.box", "the name begins with a dot"),
            ("local:..", "the name begins with a dot"),
            ("local:bo x", "the name has characters"),
            ("local:b\u{f6}x", "the name has characters"),
            ("local:b\0x", "the name has characters"),
            (&long, "the name is longer"),
        ] {
            match text.parse::<Address>() {
                Err(Error::BadAddress { address, why: said }) => {
                    assert_eq!(address, text);
                    assert!(said.starts_with(why), "{text:?}: {said}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
        let nobody: Address = "local:no-such-user-here/x".parse().unwrap();
        assert!(matches!(nobody.owner(0), Err(Error::BadAddress { .. })));
    }

    #[test]
    fn names_of_pinfolds_own_are_known() {
        let given = Address::same_host(0xfeed);
        assert_eq!(given.to_string().parse::<Address>().unwrap(), given);
        assert!(is_same_host(given.name()));
        for other in ["beside-", "beside-me", "box", &given.name().to_uppercase()] {
            assert!(!is_same_host(other), "{other}");
        }
        assert!(!is_same_host(&given.name()[..38]));
    }

    proptest! {
        #[test]
        fn what_parses_comes_back(text in "(local:)?[a-z0-9./_-]{0,70}") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.to_string(), text);
                prop_assert!(!address.name().contains('/'));
            }
        }
    }
}
