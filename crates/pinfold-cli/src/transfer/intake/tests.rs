//! The receiving side of a transfer: files, streams, holes, damage, records out of place.

use std::{
    fs, io,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use super::*;
use crate::transfer::{
    frame::{Attributes, DirectoryOffer},
    name::RelativeName,
    target::Rules,
};

const RULES: Rules =
    Rules { force: false, sync: false, times: false, umask: 0o022, nameless: true };

const ATTRIBUTES: Attributes = Attributes { mode: 0o644, modified: (0, 0) };

fn files(dir: &Path) -> Intake<fs::File> {
    Intake::new(Target::Directory(Directory::open(dir, RULES).unwrap()))
}

fn stream() -> (Intake<fs::File>, fs::File) {
    let file = tempfile::tempfile().unwrap();
    (Intake::new(Target::Output(Output::new(file.try_clone().unwrap()))), file)
}

fn offer(name: &str, size: u64) -> Record {
    let name = RelativeName::new(name.as_bytes()).unwrap();
    Record::File(FileOffer { name, size: Some(size), attributes: ATTRIBUTES })
}

fn hole(bytes: u64) -> Record {
    Record::Hole { bytes }
}

fn directory(name: &str) -> Record {
    let name = RelativeName::new(name.as_bytes()).unwrap();
    Record::Directory(DirectoryOffer { name, attributes: Attributes { mode: 0o755, ..ATTRIBUTES } })
}

fn end(contents: &[u8]) -> Record {
    let mut digester = Digester::default();
    digester.update(contents);
    Record::End { bytes: digester.bytes(), digest: digester.finish() }
}

fn finish(files: u64, bytes: u64) -> Record {
    Record::Finish(Totals { files, directories: 0, bytes })
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn files_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake = files(dir.path());
    for (name, contents) in [("a", &b"abc"[..]), ("d/b", b""), ("d/c", b"xy")] {
        assert_eq!(intake.record(offer(name, contents.len() as u64)).unwrap(), None);
        for byte in contents.chunks(1) {
            intake.block(byte).unwrap();
        }
        intake.record(end(contents)).unwrap();
        assert_eq!(fs::read(dir.path().join(name)).unwrap(), contents);
    }
    assert_eq!(intake.written(), 5);
    let totals = intake.record(finish(3, 5)).unwrap();
    assert_eq!(totals, Some(Totals { files: 3, directories: 0, bytes: 5 }));
}

#[test]
fn a_stream_arrives() {
    let (mut intake, mut file) = stream();
    intake.record(Record::Stream).unwrap();
    intake.block(b"abc").unwrap();
    intake.block(b"de").unwrap();
    assert_eq!(intake.written(), 5);
    intake.record(end(b"abcde")).unwrap();
    assert_eq!(
        intake.record(finish(0, 5)).unwrap(),
        Some(Totals { bytes: 5, ..Totals::default() })
    );
    io::Seek::rewind(&mut file).unwrap();
    assert_eq!(io::read_to_string(file).unwrap(), "abcde");
}

#[test]
fn a_flipped_bit_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake = files(dir.path());
    intake.record(offer("a", 3)).unwrap();
    intake.block(b"abb").unwrap();
    let failure = intake.record(end(b"abc")).unwrap_err();
    assert_eq!(failure.status(), 6);
    assert!(failure.to_string().contains("the file was not kept"), "{failure}");
    assert!(is_empty(dir.path()));
}

#[test]
fn a_flipped_bit_in_a_stream_is_said() {
    let (mut intake, _file) = stream();
    intake.record(Record::Stream).unwrap();
    intake.block(b"abb").unwrap();
    let failure = intake.record(end(b"abc")).unwrap_err();
    assert_eq!(failure.status(), 6);
    assert!(failure.to_string().contains("do not use what was written"), "{failure}");
}

#[test]
fn lengths_must_agree() {
    // Too little, with a digest that fits what came.
    let dir = tempfile::tempdir().unwrap();
    let mut intake = files(dir.path());
    intake.record(offer("a", 3)).unwrap();
    intake.block(b"ab").unwrap();
    assert_eq!(intake.record(end(b"ab")).unwrap_err().status(), 6);
    // The whole length, with a digest that fits what came.
    let mut intake = files(dir.path());
    intake.record(offer("a", 3)).unwrap();
    intake.block(b"ab").unwrap();
    let Record::End { digest, .. } = end(b"ab") else { unreachable!() };
    let failure = intake.record(Record::End { bytes: 3, digest }).unwrap_err();
    assert!(failure.to_string().contains("3 bytes were sent, 2 arrived"), "{failure}");
    // Too much is not even written.
    let mut intake = files(dir.path());
    intake.record(offer("a", 3)).unwrap();
    assert!(matches!(intake.block(b"abcd"), Err(Failure::Protocol { .. })));
    drop(intake);
    assert!(is_empty(dir.path()));
    // A file is missing at the end.
    let mut intake = files(dir.path());
    assert_eq!(intake.record(finish(1, 0)).unwrap_err().status(), 6);
}

#[test]
fn records_out_of_place_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let totals = Totals::default();
    let misplaced = |records: &[Record], mut intake: Intake<fs::File>| {
        let (last, before) = records.split_last().unwrap();
        for record in before {
            intake.record(record.clone()).unwrap();
        }
        let failure = intake.record(last.clone()).unwrap_err();
        assert!(matches!(failure, Failure::Protocol { .. }), "{records:?}: {failure}");
    };
    for records in [
        &[end(b"")][..],
        &[Record::Stream],
        &[hole(1)],
        &[directory("d"), directory("d")],
        &[offer("a", 1), directory("e")],
        &[offer("a", 1), hole(2)],
        &[offer("a", 9), hole(5), hole(5)],
        &[offer("a", 9), hole(u64::MAX)],
        &[Record::Bye],
        &[Record::Done(totals)],
        &[offer("a", 1), offer("b", 1)],
        &[offer("a", 1), finish(0, 0)],
    ] {
        misplaced(records, files(dir.path()));
    }
    for records in [
        &[end(b"")][..],
        &[offer("a", 1)],
        &[directory("a")],
        &[Record::Stream, hole(1)],
        &[finish(0, 0)],
        &[Record::Stream, Record::Stream],
        &[Record::Stream, finish(0, 0)],
        &[Record::Stream, end(b""), Record::Stream],
    ] {
        misplaced(records, stream().0);
    }
    assert!(matches!(files(dir.path()).block(b"x"), Err(Failure::Protocol { .. })));
    assert!(matches!(stream().0.block(b"x"), Err(Failure::Protocol { .. })));
    fs::remove_dir(dir.path().join("d")).unwrap();
    assert!(is_empty(dir.path()));
}

/// A terabyte that is a hole but for three bytes takes no more room than they do.
#[test]
fn holes_are_not_written() {
    const SIZE: u64 = 1 << 40;
    let dir = tempfile::tempdir().unwrap();
    if let Err(why) = tempfile::tempfile_in(dir.path()).unwrap().set_len(SIZE) {
        return pinfold_tests::skip(&format!("no file of {SIZE} bytes can be here: {why}"));
    }
    let mut intake = files(dir.path());
    let (before, after, mut digester) = (SIZE / 2, SIZE / 2 - 3, Digester::default());
    intake.record(offer("a", SIZE)).unwrap();
    intake.record(hole(before)).unwrap();
    digester.hole(before);
    intake.block(b"abc").unwrap();
    digester.update(b"abc");
    intake.record(hole(after)).unwrap();
    digester.hole(after);
    assert_eq!(intake.written(), SIZE);
    intake.record(Record::End { bytes: SIZE, digest: digester.finish() }).unwrap();
    assert!(intake.record(finish(1, SIZE)).unwrap().is_some());
    let file = fs::File::open(dir.path().join("a")).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), SIZE);
    assert!(metadata.blocks() * 512 <= 1 << 20, "{}", metadata.blocks());
    let mut found = [7; 5];
    file.read_exact_at(&mut found, before - 1).unwrap();
    assert_eq!(&found, b"\0abc\0");
}

#[test]
fn a_hole_that_is_elsewhere_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake = files(dir.path());
    intake.record(offer("a", 8195)).unwrap();
    intake.block(b"abc").unwrap();
    intake.record(hole(8192)).unwrap();
    let mut digester = Digester::default();
    digester.hole(8192);
    digester.update(b"abc");
    let end = Record::End { bytes: 8195, digest: digester.finish() };
    assert_eq!(intake.record(end).unwrap_err().status(), 6);
    drop(intake);
    assert!(is_empty(dir.path()));
}

#[test]
fn a_file_of_no_known_size_ends_where_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake = files(dir.path());
    let file = |name: &str| {
        let name = RelativeName::new(name.as_bytes()).unwrap();
        Record::File(FileOffer { name, size: None, attributes: ATTRIBUTES })
    };
    intake.record(file("a")).unwrap();
    intake.block(b"ab").unwrap();
    intake.block(b"c").unwrap();
    intake.record(end(b"abc")).unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"abc");
    // The stream is verified like a file, and has no holes.
    intake.record(file("b")).unwrap();
    intake.block(b"ab").unwrap();
    assert_eq!(intake.record(end(b"abc")).unwrap_err().status(), 6);
    intake.record(file("c")).unwrap();
    assert!(matches!(intake.record(hole(1)), Err(Failure::Protocol { .. })));
    drop(intake);
    assert!(!dir.path().join("b").exists() && !dir.path().join("c").exists());
}

#[test]
fn directories_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake = files(dir.path());
    intake.record(directory("d")).unwrap();
    intake.record(directory("d/e")).unwrap();
    let less = Record::Finish(Totals { directories: 1, ..Totals::default() });
    assert_eq!(intake.record(less).unwrap_err().status(), 6);
    let totals = Totals { directories: 2, ..Totals::default() };
    assert_eq!(intake.record(Record::Finish(totals)).unwrap(), Some(totals));
    assert!(dir.path().join("d/e").is_dir());
}
