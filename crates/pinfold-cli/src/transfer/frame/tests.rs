//! Records of a transfer: encoded, decoded, damaged, impossible.

use proptest::prelude::*;

use super::*;

fn any_totals() -> impl Strategy<Value = Totals> {
    any::<(u64, u64, u64)>().prop_map(|(files, directories, bytes)| Totals {
        files,
        directories,
        bytes,
    })
}

fn any_name() -> impl Strategy<Value = RelativeName> {
    "[a-zé \n]{1,80}(/[a-z.]{3,9}x){0,5}"
        .prop_map(|name| RelativeName::new(name.as_bytes()).unwrap())
}

fn any_attributes() -> impl Strategy<Value = Attributes> {
    (0..=0o777u32, any::<i64>(), 0..1_000_000_000u32).prop_map(|(mode, seconds, nanoseconds)| {
        Attributes { mode, modified: (seconds, nanoseconds) }
    })
}

fn any_record() -> impl Strategy<Value = Record> {
    let hello = (any::<u16>(), any::<u16>(), any::<bool>(), any_totals()).prop_map(
        |(a, b, stream, expected)| {
            Record::Hello(Hello {
                version_min: a.min(b),
                version_max: a.max(b),
                content: if stream { Content::Stream } else { Content::Files },
                expected: Totals { directories: 0, ..expected },
            })
        },
    );
    let size = prop::option::of(0..=i64::MAX as u64);
    let file = (any_name(), size, any_attributes())
        .prop_map(|(name, size, attributes)| Record::File(FileOffer { name, size, attributes }));
    let directory = (any_name(), any_attributes())
        .prop_map(|(name, attributes)| Record::Directory(DirectoryOffer { name, attributes }));
    prop_oneof![
        hello,
        file,
        directory,
        (1..=u64::MAX).prop_map(|bytes| Record::Hole { bytes }),
        any::<u16>().prop_map(|version| Record::Ready { version }),
        Just(Record::Stream),
        (any::<u64>(), any::<[u8; 16]>())
            .prop_map(|(bytes, digest)| Record::End { bytes, digest: Digest(digest) }),
        any_totals().prop_map(Record::Finish),
        any_totals().prop_map(Record::Done),
        (0..3usize, ".{0,100}").prop_map(|(cause, text)| Record::Abort {
            cause: [Cause::Other, Cause::Integrity, Cause::Refused][cause],
            text,
        }),
        Just(Record::Bye),
    ]
}

proptest! {
    #[test]
    fn records_come_back(record in any_record()) {
        let bytes = record.encode();
        prop_assert!(bytes.len() <= RECORD_BYTES_MAX);
        prop_assert_eq!(Record::decode(&bytes), Ok(record));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn a_damaged_record_is_decoded_or_refused(
        record in any_record(), at in any::<prop::sample::Index>(), with in any::<u8>(),
        length in 0usize..300,
    ) {
        let mut bytes = record.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        bytes.resize(length, 0);
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }
}

#[test]
fn impossible_values_are_refused() {
    let file = |mode: u32, size: u64, nanoseconds: u32, name: &[u8]| {
        let wire = FileWire {
            size: size.into(),
            attributes: AttributesWire::from(Attributes { mode, modified: (0, nanoseconds) }),
        };
        Record::decode(&assemble(kind::FILE, &wire, name))
    };
    assert!(file(0o777, 0, 0, b"a").is_ok());
    assert_eq!(file(0o4755, 0, 0, b"a"), Err(BadRecord::Value("mode")));
    assert_eq!(file(0, 1 << 63, 0, b"a"), Err(BadRecord::Value("size")));
    assert_eq!(file(0, 0, 1_000_000_000, b"a"), Err(BadRecord::Value("time")));
    assert_eq!(file(0, 0, 0, b"../a"), Err(BadRecord::Name(BadName::Parent)));
    let directory = |mode: u32, name: &[u8]| {
        let wire = AttributesWire::from(Attributes { mode, modified: (0, 0) });
        Record::decode(&assemble(kind::DIRECTORY, &wire, name))
    };
    assert!(directory(0o777, b"a/b").is_ok());
    assert_eq!(directory(0o2755, b"a"), Err(BadRecord::Value("mode")));
    assert_eq!(directory(0o755, b"/a"), Err(BadRecord::Name(BadName::Absolute)));
    assert_eq!(directory(0o755, b""), Err(BadRecord::Name(BadName::Empty)));
    let hello = |magic: [u8; 4], versions: (u16, u16), content: u8| {
        let expected = ExpectedWire { files: 0.into(), bytes: 0.into() };
        let (version_min, version_max) = (versions.0.into(), versions.1.into());
        let wire = HelloWire { magic, version_min, version_max, content, expected };
        Record::decode(&assemble(kind::HELLO, &wire, &[]))
    };
    assert!(hello(MAGIC, (1, 1), 1).is_ok());
    assert_eq!(hello(*b"pfXG", (1, 1), 0), Err(BadRecord::Value("signature")));
    assert_eq!(hello(MAGIC, (2, 1), 0), Err(BadRecord::Value("range of versions")));
    assert_eq!(hello(MAGIC, (1, 1), 2), Err(BadRecord::Value("kind of content")));
    let hole = |bytes: u64| Record::decode(&assemble(kind::HOLE, &U64::from(bytes), &[]));
    assert_eq!(hole(0), Err(BadRecord::Value("size of a hole")));
    assert_eq!(hole(1), Ok(Record::Hole { bytes: 1 }));
    assert_eq!(Record::decode(&[]), Err(BadRecord::Kind));
    assert_eq!(Record::decode(&[0]), Err(BadRecord::Kind));
    assert_eq!(Record::decode(&[kind::BYE, 0]), Err(BadRecord::Length));
    assert_eq!(Record::decode(&[kind::END; 5000][..40]), Err(BadRecord::Length));
    assert_eq!(Record::decode(&vec![kind::ABORT; RECORD_BYTES_MAX + 1]), Err(BadRecord::Length));
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let record = Record::Abort { cause: Cause::Other, text: "é".repeat(3000) };
    let Ok(Record::Abort { text, .. }) = Record::decode(&record.encode()) else { panic!() };
    assert_eq!(text, "é".repeat(1024));
}

/// A version that greets in another way cannot be told apart: these bytes are fixed for ever.
#[test]
fn a_hello_is_the_same_in_all_versions() {
    let hello = Hello {
        version_min: 2,
        version_max: 0x0304,
        content: Content::Stream,
        expected: Totals { files: 5, directories: 0, bytes: 6 },
    };
    let bytes = b"\x01pfXF\x02\0\x04\x03\x01\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0";
    assert_eq!(Record::Hello(hello).encode(), bytes);
    assert_eq!(Record::decode(bytes), Ok(Record::Hello(hello)));
}
