//! Where the publishers and subscribers of a topic listen: at names with numbers, so that each side
//! can call all of the other.

use crate::{Error, Result, transport::local::Address};

/// Publishers, and subscribers, that a topic can have.
pub(super) const PLACES: u32 = 128;

/// One of the two sides of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Publishers,
    Subscribers,
}

impl Side {
    fn letter(self) -> char {
        match self {
            Side::Publishers => 'p',
            Side::Subscribers => 's',
        }
    }
}

/// The name of a topic, `NAME` or, of another user's, `USER/NAME`.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    user: Option<String>,
    name: String,
}

impl Topic {
    /// # Errors
    /// [`Error::BadAddress`] unless its addresses are some.
    pub(super) fn parse(text: &str) -> Result<Topic> {
        let (user, name) = match text.split_once('/') {
            Some((user, name)) => (Some(user.to_owned()), name),
            None => (None, text),
        };
        let topic = Topic { user, name: name.to_owned() };
        let is_good = !name.is_empty() && !name.starts_with('.');
        match topic.place(Side::Publishers, PLACES - 1).parse::<Address>() {
            Ok(_) if is_good => Ok(topic),
            _ => Err(Error::BadAddress {
                address: text.to_owned(),
                why: "a topic has a name of 1 to 53 characters out of A-Z a-z 0-9 . _ -, which \
                      does not begin with a dot, and before it at most a user and a slash",
            }),
        }
    }

    /// The label of its endpoints: the beginning of its name.
    pub(super) fn label(&self) -> &str {
        self.name.get(..self.name.len().min(32)).unwrap_or_default()
    }

    /// True if it is another user's: its publishers cannot find the subscribers of this one.
    pub(super) fn is_others(&self) -> bool {
        self.user.is_some()
    }

    /// The address of a place of the topic's user.
    pub(super) fn place(&self, side: Side, number: u32) -> String {
        let user = self.user.as_ref().map(|user| format!("{user}/")).unwrap_or_default();
        format!("local:{user}topic.{}.{}{number}", self.name, side.letter())
    }

    /// The address of a place of this user.
    pub(super) fn own_place(&self, side: Side, number: u32) -> String {
        format!("local:topic.{}.{}{number}", self.name, side.letter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_topics() {
        let longest = "x".repeat(53);
        for good in ["pose", "robot_1.pose-raw", "alice/pose", "1000/pose", &longest] {
            assert!(Topic::parse(good).is_ok(), "{good}");
        }
        let too_long = "x".repeat(54);
        for bad in ["", ".pose", "a/b/c", "alice/", "/pose", "po se", "pose\n", &too_long] {
            assert!(Topic::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn places_are_apart() {
        let topic = Topic::parse("alice/pose").unwrap();
        assert_eq!(topic.place(Side::Publishers, 3), "local:alice/topic.pose.p3");
        assert_eq!(topic.own_place(Side::Subscribers, 3), "local:topic.pose.s3");
        assert!(topic.is_others() && !Topic::parse("pose").unwrap().is_others());
        // `pose.p3` at 1, and `pose` at 31, are others.
        let dotted = Topic::parse("pose.p3").unwrap();
        assert_eq!(dotted.own_place(Side::Publishers, 1), "local:topic.pose.p3.p1");
    }
}
