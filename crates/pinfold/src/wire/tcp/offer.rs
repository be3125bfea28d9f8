//! The facts that one side of a TCP connection tells about itself once both have proved the key.

use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

use super::super::hello::{self, LABEL_MAX, Limits, Malformed};
use crate::policy::route::PathSet;

type Decoded<T> = Result<T, Malformed>;

/// The longest name of a local endpoint, bytes.
const NAME_MAX: usize = 64;

/// The highest number of a frame, and of a byte of one.
pub(crate) const SEQ_MAX: u64 = i64::MAX as u64;

/// The endpoint, and its offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Drawn at random when the endpoint was made; never all zero.
    pub endpoint_id: [u8; 16],
    /// Drawn at random when the process began, never 0: a peer that was restarted is a new peer.
    pub incarnation: u64,
    /// The host it runs on.
    pub host: HostIdentity,
    /// The name by which peers on the same host find it.
    pub local: Option<LocalName>,
    /// The user's name for the endpoint; at most 32 bytes, no control characters.
    pub label: String,
    /// The limits that it grants the reader of this.
    pub limits: Limits,
    /// The paths it has not switched off, for a peer on the same host.
    pub paths: PathSet,
    /// Its abilities over TCP.
    pub modes: ModeSet,
    /// True if it wants the connection encrypted.
    pub tls: bool,
}

/// Two processes with the same identity are on one host, and see the same local endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostIdentity {
    /// Drawn by the kernel when it booted.
    pub boot: [u8; 16],
    /// Drawn at random for a set of processes that see the same local endpoints: containers share
    /// a boot, not this.
    pub word: u64,
}

/// An endpoint of this host, `local:USER/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalName {
    /// The user's number.
    pub user: u32,
    /// The endpoint's name, by the rules of local names.
    pub name: String,
}

/// The abilities of a side over TCP, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeSet(u16);

impl ModeSet {
    /// Messages wait in their senders' memory until they are matched.
    pub(crate) const RENDEZVOUS: ModeSet = ModeSet(1);
    /// It serves writes and reads of its regions.
    pub(crate) const ONE_SIDED: ModeSet = ModeSet(1 << 1);
    /// It serves atomic operations on them.
    pub(crate) const ATOMICS: ModeSet = ModeSet(1 << 2);
    /// It has handlers for active messages.
    pub(crate) const ACTIVE: ModeSet = ModeSet(1 << 3);
    /// It takes a session up again after its connection broke.
    pub(crate) const RESUMES: ModeSet = ModeSet(1 << 4);

    pub(crate) const fn all() -> ModeSet {
        ModeSet((1 << 5) - 1)
    }

    pub(crate) const fn none() -> ModeSet {
        ModeSet(0)
    }

    pub(crate) const fn with(self, more: ModeSet) -> ModeSet {
        ModeSet(self.0 | more.0)
    }

    /// The abilities of both.
    pub(crate) const fn and(self, other: ModeSet) -> ModeSet {
        ModeSet(self.0 & other.0)
    }

    pub(crate) const fn contains(self, modes: ModeSet) -> bool {
        self.0 & modes.0 == modes.0
    }
}

/// The session of a connection: a new one, or one that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    New,
    Resume(Resume),
}

/// The amount of the other side's bytes that has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Whole frames.
    pub frames: u64,
    /// Bytes that follow the words of the next one.
    pub bytes: u64,
}

/// The session that goes on, and the point from which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    /// Never all zero.
    pub id: [u8; 16],
    /// The point up to which its sender has received.
    pub received: Reached,
    /// The proof that its sender knows the session's secret.
    pub proof: [u8; 32],
}

const FLAG_TLS: u8 = 1;
const FLAG_LOCAL: u8 = 1 << 1;
const FLAG_RESUME: u8 = 1 << 2;

/// An [`Offer`] and a [`Wanted`].
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawOffer {
    endpoint_id: [u8; 16],
    boot: [u8; 16],
    incarnation: U64,
    word: U64,
    unexpected_bytes: U64,
    rendezvous_max: U32,
    user: U32,
    paths: U16,
    modes: U16,
    flags: u8,
    label_len: u8,
    name_len: U16,
    label: [u8; LABEL_MAX],
    name: [u8; NAME_MAX],
    session: [u8; 16],
    received: U64,
    received_bytes: U64,
    proof: [u8; 32],
}

const _: () = assert!(size_of::<RawOffer>() == 232);

impl RawOffer {
    /// The offer field of a packet without an offer.
    pub(super) fn nothing() -> RawOffer {
        RawOffer::new_zeroed()
    }

    pub(super) fn is_nothing(&self) -> bool {
        is_zero(self.as_bytes())
    }

    pub(super) fn new(offer: &Offer, wanted: &Wanted) -> RawOffer {
        let label = hello::fit_label(&offer.label);
        let mut raw = RawOffer {
            endpoint_id: offer.endpoint_id,
            boot: offer.host.boot,
            incarnation: offer.incarnation.into(),
            word: offer.host.word.into(),
            unexpected_bytes: offer.limits.unexpected_bytes.min(i64::MAX as u64).into(),
            rendezvous_max: offer.limits.rendezvous_max.into(),
            paths: hello::path_bits(offer.paths).into(),
            modes: offer.modes.0.into(),
            flags: if offer.tls { FLAG_TLS } else { 0 },
            label_len: label.len() as u8,
            ..RawOffer::nothing()
        };
        raw.label[..label.len()].copy_from_slice(label.as_bytes());
        // A name that is too long is left out.
        if let Some(local) = offer.local.as_ref().filter(|local| local.name.len() <= NAME_MAX) {
            raw.flags |= FLAG_LOCAL;
            raw.user = local.user.into();
            raw.name_len = (local.name.len() as u16).into();
            raw.name[..local.name.len()].copy_from_slice(local.name.as_bytes());
        }
        if let Wanted::Resume(resume) = wanted {
            raw.flags |= FLAG_RESUME;
            raw.session = resume.id;
            raw.received = resume.received.frames.into();
            raw.received_bytes = resume.received.bytes.into();
            raw.proof = resume.proof;
        }
        raw
    }

    pub(super) fn check(&self) -> Decoded<(Offer, Wanted)> {
        if self.flags & !(FLAG_TLS | FLAG_LOCAL | FLAG_RESUME) != 0 {
            return Err(Malformed("it sets flags that do not exist"));
        }
        if is_zero(&self.endpoint_id) || self.incarnation == 0 {
            return Err(Malformed("it does not say which endpoint it is"));
        }
        if self.unexpected_bytes > i64::MAX as u64 {
            return Err(Malformed("it grants more bytes than can be"));
        }
        if self.modes & !ModeSet::all().0 != 0 {
            return Err(Malformed("it names modes that do not exist"));
        }
        let offer = Offer {
            endpoint_id: self.endpoint_id,
            incarnation: self.incarnation.get(),
            host: HostIdentity { boot: self.boot, word: self.word.get() },
            local: self.local()?,
            label: text(&self.label, self.label_len.into())
                .filter(|label| !label.chars().any(char::is_control))
                .ok_or(Malformed("its label is not text"))?
                .to_owned(),
            limits: Limits {
                unexpected_bytes: self.unexpected_bytes.get(),
                rendezvous_max: self.rendezvous_max.get(),
            },
            paths: hello::paths_of(self.paths.get())?,
            modes: ModeSet(self.modes.get()),
            tls: self.flags & FLAG_TLS != 0,
        };
        Ok((offer, self.wanted()?))
    }

    fn local(&self) -> Decoded<Option<LocalName>> {
        const ODD: Malformed = Malformed("its local name cannot be one");
        let name = text(&self.name, self.name_len.get().into()).ok_or(ODD)?;
        if self.flags & FLAG_LOCAL == 0 {
            return if name.is_empty() && self.user == 0 { Ok(None) } else { Err(ODD) };
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(fits) {
            return Err(ODD);
        }
        Ok(Some(LocalName { user: self.user.get(), name: name.to_owned() }))
    }

    fn wanted(&self) -> Decoded<Wanted> {
        if self.flags & FLAG_RESUME == 0 {
            let nothing = self.received == 0 && self.received_bytes == 0;
            let none = is_zero(&self.session) && nothing && is_zero(&self.proof);
            return if none {
                Ok(Wanted::New)
            } else {
                Err(Malformed("it half resumes a session"))
            };
        }
        if is_zero(&self.session) || self.received > SEQ_MAX || self.received_bytes > SEQ_MAX {
            return Err(Malformed("the session it resumes cannot be one"));
        }
        let id = self.session;
        let received = Reached { frames: self.received.get(), bytes: self.received_bytes.get() };
        Ok(Wanted::Resume(Resume { id, received, proof: self.proof }))
    }
}

/// The text at the beginning of a field whose rest is zero.
fn text(field: &[u8], len: usize) -> Option<&str> {
    let (text, rest) = field.split_at_checked(len)?;
    std::str::from_utf8(text).ok().filter(|_| is_zero(rest))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn offers()(
            endpoint_id: [u8; 16],
            incarnation in 1u64..,
            boot: [u8; 16],
            word: u64,
            local in proptest::option::of((any::<u32>(), "[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")),
            label in "[^\\p{Cc}]{0,8}",
            unexpected_bytes in 0..=i64::MAX as u64,
            rendezvous_max: u32,
            paths in 0u16..32,
            modes in 0..=ModeSet::all().0,
            tls: bool,
        ) -> Offer {
            Offer {
                endpoint_id: if endpoint_id == [0; 16] { [1; 16] } else { endpoint_id },
                incarnation,
                host: HostIdentity { boot, word },
                local: local.map(|(user, name)| LocalName { user, name }),
                label: hello::fit_label(&label),
                limits: Limits { unexpected_bytes, rendezvous_max },
                paths: hello::paths_of(paths).unwrap(),
                modes: ModeSet(modes),
                tls,
            }
        }
    }

    proptest! {
        #[test]
        fn offers_survive(offer in offers(), id in 1u8.., frames in 0..=SEQ_MAX, bytes in 0..=SEQ_MAX, proof: [u8; 32]) {
            let received = Reached { frames, bytes };
            for wanted in [Wanted::New, Wanted::Resume(Resume { id: [id; 16], received, proof })] {
                let raw = RawOffer::new(&offer, &wanted);
                prop_assert_eq!(raw.check(), Ok((offer.clone(), wanted)));
                prop_assert!(!raw.is_nothing());
            }
        }

        /// No byte is without meaning: an accepted packet is encoded as it came.
        #[test]
        fn what_is_accepted_is_what_would_be_sent(
            offer in offers(), at in 0usize..232, byte: u8, resume: bool
        ) {
            let resume = Resume { id: [7; 16], received: Reached { frames: 9, bytes: 3 }, proof: [8; 32] };
            let wanted = if byte & 1 == 0 { Wanted::New } else { Wanted::Resume(resume) };
            let mut bytes = RawOffer::new(&offer, &wanted).as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok((offer, wanted)) = RawOffer::read_from_bytes(&bytes).unwrap().check() {
                let again = RawOffer::new(&offer, &wanted);
                prop_assert_eq!(again.as_bytes(), &bytes[..]);
            }
        }

        #[test]
        fn any_bytes_are_checked_without_panic(bytes in proptest::collection::vec(any::<u8>(), 232)) {
            let _ = RawOffer::read_from_bytes(&bytes).unwrap().check();
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let offer = Offer {
            endpoint_id: [1; 16],
            incarnation: 2,
            host: HostIdentity { boot: [3; 16], word: 4 },
            local: Some(LocalName { user: 5, name: "box".into() }),
            label: "label".into(),
            limits: Limits { unexpected_bytes: 6, rendezvous_max: 7 },
            paths: PathSet::all(),
            modes: ModeSet::all(),
            tls: true,
        };
        let good = RawOffer::new(&offer, &Wanted::New);
        let why = |change: &dyn Fn(&mut RawOffer)| {
            let mut raw = good;
            change(&mut raw);
            raw.check().unwrap_err().0
        };
        assert!(why(&|raw| raw.flags |= 1 << 3).contains("flags"));
        assert!(why(&|raw| raw.endpoint_id = [0; 16]).contains("which endpoint"));
        assert!(why(&|raw| raw.incarnation = 0.into()).contains("which endpoint"));
        assert!(why(&|raw| raw.unexpected_bytes = (1 << 63).into()).contains("grants"));
        assert!(why(&|raw| raw.modes = (1 << 5).into()).contains("modes"));
        assert!(why(&|raw| raw.paths = (1 << 5).into()).contains("paths"));
        assert!(why(&|raw| raw.label_len = 33).contains("label"));
        assert!(why(&|raw| raw.label_len = 4).contains("label"));
        assert!(why(&|raw| raw.label[2] = 7).contains("label"));
        assert!(why(&|raw| raw.label[2] = 0xff).contains("label"));
        assert!(why(&|raw| raw.name_len = 65.into()).contains("local name"));
        assert!(why(&|raw| raw.name_len = 2.into()).contains("local name"));
        assert!(why(&|raw| raw.name[0] = b'.').contains("local name"));
        assert!(why(&|raw| raw.name[0] = b'/').contains("local name"));
        assert!(why(&|raw| raw.flags &= !FLAG_LOCAL).contains("local name"));
        let nameless = |raw: &mut RawOffer| (raw.name, raw.name_len) = ([0; NAME_MAX], 0.into());
        assert!(why(&nameless).contains("local name"));
        let user_alone = |raw: &mut RawOffer| {
            nameless(raw);
            raw.flags &= !FLAG_LOCAL;
        };
        assert!(why(&user_alone).contains("local name"));
        assert!(why(&|raw| raw.received = 1.into()).contains("half"));
        assert!(why(&|raw| raw.received_bytes = 1.into()).contains("half"));
        assert!(why(&|raw| raw.session[3] = 1).contains("half"));
        assert!(why(&|raw| raw.proof[3] = 1).contains("half"));
        assert!(why(&|raw| raw.flags |= FLAG_RESUME).contains("resumes"));
        let resumes = |raw: &mut RawOffer| {
            (raw.flags, raw.session) = (raw.flags | FLAG_RESUME, [1; 16]);
            raw.received = (SEQ_MAX + 1).into();
        };
        assert!(why(&resumes).contains("resumes"));
        let resumes = |raw: &mut RawOffer| {
            (raw.flags, raw.session) = (raw.flags | FLAG_RESUME, [1; 16]);
            raw.received_bytes = (SEQ_MAX + 1).into();
        };
        assert!(why(&resumes).contains("resumes"));
        assert!(ModeSet::all().contains(ModeSet::ATOMICS.with(ModeSet::RESUMES)));
        assert_eq!(ModeSet::all().and(ModeSet::ACTIVE), ModeSet::ACTIVE);
        assert!(!ModeSet::none().with(ModeSet::RENDEZVOUS).contains(ModeSet::ONE_SIDED));
    }
}
