//! The eight bytes before each message, and the tags under which the library carries it.
//!
//! Both ends of a connection are endpoints of this provider, of the same build or another: the
//! layout is part of what they agree on. Bytes of a peer that mean nothing are taken as zeros.

/// Length of the header, bytes.
pub const BYTES: usize = 8;

/// The highest bit of a tag tells messages without one from tagged ones.
const UNTAGGED: u64 = 1 << 63;
/// The next one tells the provider's own messages from the program's.
const CONTROL: u64 = UNTAGGED | 1 << 62;

/// The bits of a tag that are the program's.
pub const TAG_BITS: u64 = UNTAGGED - 1;
/// The library's tag of messages without one.
pub const MESSAGE: u64 = UNTAGGED;
/// The library's tag of the provider's own messages.
pub const OWN: u64 = CONTROL;

const HAS_DATA: u32 = 1 << 31;
const WANTS_ACK: u32 = 1 << 30;
/// The bits of an acknowledgement's number.
pub const ACK_BITS: u32 = WANTS_ACK - 1;

/// The header of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Data that comes with the message.
    pub data: Option<u32>,
    /// The number under which the sender wants to know that the message has arrived.
    pub ack: Option<u32>,
}

impl Header {
    pub fn bytes(self) -> [u8; BYTES] {
        let ack = self.ack.map_or(0, |number| WANTS_ACK | number & ACK_BITS);
        let flags = ack | if self.data.is_some() { HAS_DATA } else { 0 };
        (u64::from(flags) << 32 | u64::from(self.data.unwrap_or(0))).to_le_bytes()
    }

    pub fn read(bytes: [u8; BYTES]) -> Header {
        let word = u64::from_le_bytes(bytes);
        let flags = (word >> 32) as u32;
        Header {
            data: (flags & HAS_DATA != 0).then_some(word as u32),
            ack: (flags & WANTS_ACK != 0).then_some(flags & ACK_BITS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_bytes() {
        for data in [None, Some(0), Some(u32::MAX)] {
            for ack in [None, Some(0), Some(ACK_BITS)] {
                let header = Header { data, ack };
                assert_eq!(Header::read(header.bytes()), header);
            }
        }
        assert_eq!(Header::default().bytes(), [0; BYTES]);
    }

    #[test]
    fn kinds_of_messages_have_tags_of_their_own() {
        assert_eq!(TAG_BITS & MESSAGE, 0);
        assert_ne!(MESSAGE, OWN);
        assert_eq!(OWN & MESSAGE, MESSAGE);
    }
}
