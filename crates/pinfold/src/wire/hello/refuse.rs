//! The message with the reason why a connection is refused. All of it is the same in every version.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Decoded, ERRNO_MAX, Head, Malformed, REFUSE, exactly, head};

/// Calls that a refusal can name, by their places here.
pub(super) const CALLS: [&str; 11] = [
    "accept4",
    "memfd_create",
    "ftruncate",
    "fcntl(F_ADD_SEALS)",
    "mmap",
    "getrandom",
    "getsockopt",
    "sendmsg",
    "recvmsg",
    "pidfd_open",
    "epoll_ctl",
];

/// The reason why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refuse {
    /// The access rule does not admit the user.
    NotAdmitted {
        /// The user the listening endpoint runs as.
        owner: u32,
        /// The user that connected, as the listening side sees it.
        user: u32,
        /// The number of other users that the rule names.
        users: u32,
        /// The number of groups that the rule names.
        groups: u32,
    },
    /// No version in common.
    Version {
        /// The oldest the sender speaks.
        min: u32,
        /// The newest the sender speaks.
        max: u32,
    },
    /// The listening endpoint has all the peers it may have.
    Full {
        /// The limit.
        peers_max: u64,
    },
    /// The listening process ran out of something.
    Exhausted {
        /// The call that failed, if it is one of [`CALLS`]; else empty.
        call: &'static str,
        /// The kernel's error.
        errno: i32,
    },
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RefuseMessage {
    head: Head,
    code: u64,
    numbers: [u64; 4],
}

const _: () = assert!(size_of::<RefuseMessage>() == 56);

pub(crate) fn encode_refuse(why: &Refuse) -> Vec<u8> {
    let (code, numbers) = match *why {
        Refuse::NotAdmitted { owner, user, users, groups } => {
            (1, [owner, user, users, groups].map(u64::from))
        }
        Refuse::Version { min, max } => (2, [min.into(), max.into(), 0, 0]),
        Refuse::Full { peers_max } => (3, [peers_max, 0, 0, 0]),
        Refuse::Exhausted { call, errno } => {
            let call = CALLS.iter().position(|one| *one == call).map_or(0, |at| at as u64 + 1);
            (4, [u64::from(errno.unsigned_abs()), call, 0, 0])
        }
    };
    RefuseMessage { head: Head::new(REFUSE), code, numbers }.as_bytes().to_vec()
}

/// Decodes a message whose head is known to be a refusal's.
pub(super) fn decode(bytes: &[u8]) -> Decoded<Refuse> {
    exactly::<RefuseMessage>(bytes)?.check()
}

/// The refusal, if the message is one: after Welcome and Proof the listening side may still lack
/// something.
pub(crate) fn decode_refusal(bytes: &[u8]) -> Option<Refuse> {
    head(bytes, REFUSE).ok()?;
    decode(bytes).ok()
}

impl RefuseMessage {
    fn check(&self) -> Decoded<Refuse> {
        let number = |at: usize| {
            u32::try_from(self.numbers[at]).map_err(|_| Malformed("a refusal is out of range"))
        };
        Ok(match self.code {
            1 => Refuse::NotAdmitted {
                owner: number(0)?,
                user: number(1)?,
                users: number(2)?,
                groups: number(3)?,
            },
            2 => Refuse::Version { min: number(0)?, max: number(1)? },
            3 => Refuse::Full { peers_max: self.numbers[0] },
            4 => {
                let errno = i32::try_from(number(0)?).unwrap_or(i32::MAX);
                let call = usize::try_from(self.numbers[1]).unwrap_or(0);
                let call = CALLS.get(call.wrapping_sub(1)).copied().unwrap_or_default();
                Refuse::Exhausted { call, errno: errno.clamp(1, ERRNO_MAX) }
            }
            _ => return Err(Malformed("it refuses for no known reason")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_cannot_be_are_refused_or_bounded() {
        let refusal = |code, numbers| {
            let head = Head::new(REFUSE);
            decode(RefuseMessage { head, code, numbers }.as_bytes())
        };
        let range = Err(Malformed("a refusal is out of range"));
        for at in 0..4 {
            let mut numbers = [7; 4];
            numbers[at] = 1 << 32;
            assert_eq!(refusal(1, numbers), range, "{at}");
        }
        assert_eq!(refusal(2, [1, 1 << 32, 0, 0]), range);
        assert!(refusal(0, [0; 4]).is_err() && refusal(5, [0; 4]).is_err());
        // An error that the kernel never reports is not taken for one.
        for errno in [0, 4096, u64::from(u32::MAX)] {
            let Ok(Refuse::Exhausted { errno, call }) = refusal(4, [errno, 0, 0, 0]) else {
                panic!("{errno}");
            };
            assert!((1..=ERRNO_MAX).contains(&errno) && call.is_empty(), "{errno}");
        }
        let calls = |number| refusal(4, [24, number, 0, 0]);
        let known = Refuse::Exhausted { call: CALLS[0], errno: 24 };
        assert_eq!(calls(1), Ok(known));
        for number in [CALLS.len() as u64 + 1, u64::MAX] {
            assert_eq!(calls(number), Ok(Refuse::Exhausted { call: "", errno: 24 }), "{number}");
        }
    }
}
