//! The bytes by which peers ask an owner for its memory. No I/O; nothing here trusts a peer.

use pinfold::RegionKey;

use crate::{
    arithmetic::{Call, Op, Type},
    guard::{Answer, Code},
};

/// A region that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of its first byte, as operations name it.
    pub base: u64,
    /// Its place in the owner's process.
    pub start: u64,
    pub len: u64,
    pub access: u64,
    /// The owner wants to know of each use.
    pub is_counted: bool,
    pub key: RegionKey,
}

const FOUND_BYTES: usize = 4 + 5 * 8 + RegionKey::BYTES;

impl Found {
    /// The answer of an owner.
    pub fn bytes(found: Result<&Found, &Code>) -> Vec<u8> {
        let found = match found {
            Ok(found) => found,
            Err(Code(code)) => return code.to_le_bytes().to_vec(),
        };
        let Found { base, start, len, access, is_counted, key } = found;
        let mut bytes = vec![0; 4];
        for word in [*base, *start, *len, *access, u64::from(*is_counted)] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&key.to_bytes());
        bytes
    }

    /// The answer as it came.
    pub fn read(bytes: &[u8]) -> Answer<Found> {
        let code = code_of(bytes)?;
        if code != 0 {
            return Err(Code(code.abs()));
        }
        if bytes.len() != FOUND_BYTES {
            return Err(Code::OTHER);
        }
        let word = |at: usize| word_at(bytes, 4 + 8 * at).unwrap_or(0);
        let key = RegionKey::from_bytes(&bytes[FOUND_BYTES - RegionKey::BYTES..]);
        Ok(Found {
            base: word(0),
            start: word(1),
            len: word(2),
            access: word(3),
            is_counted: word(4) != 0,
            key: key.map_err(|_| Code::OTHER)?,
        })
    }
}

fn code_of(bytes: &[u8]) -> Answer<i32> {
    let code = bytes.first_chunk().ok_or(Code::OTHER)?;
    Ok(i32::from_le_bytes(*code))
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

/// The old elements that an owner answered with, `len` bytes of them.
pub fn fetched(answer: &[u8], len: usize) -> Answer<&[u8]> {
    match code_of(answer)? {
        0 if answer.len() == 4 + len => Ok(&answer[4..]),
        0 => Err(Code::OTHER),
        code => Err(Code(code.abs())),
    }
}

/// Elements of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub at: u64,
    pub key: u64,
    pub count: u64,
}

/// An atomic operation that is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub call: Call,
    pub op: Op,
    pub of: Type,
    pub ranges: Vec<Range>,
    /// The bytes of all elements, one after the other; none for a read.
    pub operands: &'a [u8],
    /// The same, for a comparison.
    pub compares: &'a [u8],
}

impl Change<'_> {
    /// The request, with libfabric's numbers of operation and type.
    pub fn asked(
        call: Call,
        op: i32,
        of: i32,
        ranges: &[Range],
        operands: &[u8],
        compares: &[u8],
    ) -> Vec<u8> {
        let call = match call {
            Call::Change => 0,
            Call::Fetch => 1,
            Call::Compare => 2,
        };
        let mut bytes = vec![call, op as u8, of as u8, ranges.len() as u8];
        for range in ranges {
            for word in [range.at, range.key, range.count] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes.extend_from_slice(operands);
        bytes.extend_from_slice(compares);
        bytes
    }
}

/// The reading of requests.
pub enum Read {}

impl Read {
    /// A request as it came. `None`: it makes no sense.
    pub fn change(bytes: &[u8]) -> Option<Change<'_>> {
        let [call, op, of, count, rest @ ..] = bytes else { return None };
        let call = match call {
            0 => Call::Change,
            1 => Call::Fetch,
            2 => Call::Compare,
            _ => return None,
        };
        let (op, of) = (Op::numbered((*op).into())?, Type::numbered((*of).into())?);
        if !op.is_valid(of, call) {
            return None;
        }
        let (heads, rest) = rest.split_at_checked(usize::from(*count) * 24)?;
        let range = |head: &[u8]| {
            let word = |at| word_at(head, at).unwrap_or(0);
            Range { at: word(0), key: word(8), count: word(16) }
        };
        let ranges: Vec<Range> = heads.chunks(24).map(range).collect();
        let add = |sum: u64, range: &Range| sum.checked_add(range.count);
        let elements = ranges.iter().try_fold(0, add)?;
        let len = usize::try_from(elements).ok()?.checked_mul(of.bytes())?;
        let operands = if op == Op::Read { 0 } else { len };
        let compares = if call == Call::Compare { len } else { 0 };
        let fits = rest.len() == operands.checked_add(compares)?;
        let (operands, compares) = rest.split_at_checked(operands).filter(|_| fits)?;
        Some(Change { call, op, of, ranges, operands, compares })
    }
}

/// A peer has used a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    pub key: u64,
    pub access: u64,
    pub len: u64,
    /// The word for the owner's queue.
    pub data: Option<u64>,
}

impl Note {
    pub fn bytes(&self) -> [u8; 40] {
        let words =
            [self.key, self.access, self.len, self.data.is_some().into(), self.data.unwrap_or(0)];
        let mut bytes = [0; 40];
        for (to, word) in bytes.chunks_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub fn read(bytes: &[u8]) -> Option<Note> {
        let word = |at: usize| word_at(bytes, 8 * at);
        let data = word(4)?;
        Some(Note {
            key: word(0)?,
            access: word(1)?,
            len: word(2)?,
            data: (word(3)? != 0).then_some(data),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let key = RegionKey::from_bytes(&[7; RegionKey::BYTES]).unwrap();
        let found = Found { base: 1, start: 2, len: 3, access: 4, is_counted: true, key };
        assert_eq!(Found::read(&Found::bytes(Ok(&found))), Ok(found));
        let refused = Found::bytes(Err(&Code(libc::EACCES)));
        assert_eq!(Found::read(&refused), Err(Code(libc::EACCES)));
        assert_eq!(Found::read(&[]), Err(Code::OTHER));
        assert_eq!(Found::read(&[0; 40]), Err(Code::OTHER));
        for data in [None, Some(9)] {
            let note = Note { key: 1, access: 2, len: 3, data };
            assert_eq!(Note::read(&note.bytes()), Some(note));
        }
        assert_eq!(Note::read(&[0; 39]), None);
        let ranges = [Range { at: 1, key: 2, count: 2 }, Range { at: 5, key: 6, count: 1 }];
        let asked = Change::asked(Call::Compare, 12, 5, &ranges, &[1; 12], &[2; 12]);
        let read = Read::change(&asked).unwrap();
        assert_eq!((read.ranges.as_slice(), read.operands), (&ranges[..], &[1; 12][..]));
        assert_eq!(read.compares, [2; 12]);
    }

    #[test]
    fn requests_that_make_no_sense_are_none() {
        let ranges = [Range { at: 0, key: 0, count: u64::MAX }, Range { at: 0, key: 0, count: 2 }];
        assert_eq!(Read::change(&Change::asked(Call::Change, 2, 7, &ranges, &[], &[])), None);
        let huge = [Range { at: 0, key: 0, count: u64::MAX / 4 }];
        assert_eq!(Read::change(&Change::asked(Call::Change, 2, 7, &huge, &[1; 8], &[])), None);
        let one = [Range { at: 0, key: 0, count: 1 }];
        assert_eq!(Read::change(&Change::asked(Call::Change, 2, 7, &one, &[1; 9], &[])), None);
        assert_eq!(Read::change(&Change::asked(Call::Change, 99, 7, &one, &[1; 8], &[])), None);
        assert_eq!(Read::change(&[0, 2, 7, 200]), None);
        assert_eq!(fetched(&[0, 0, 0, 0, 1], 2), Err(Code::OTHER));
        assert_eq!(fetched(&[0, 0, 0, 0, 1], 1), Ok(&[1][..]));
    }
}
