use std::{fs, io, path::Path};

use super::*;
use crate::transfer::{frame::FileOffer, name::RelativeName, target::Rules};

const RULES: Rules = Rules { force: false, sync: false, umask: 0o022, nameless: true };

fn files(dir: &Path) -> Intake<fs::File> {
    Intake::new(Target::Directory(Directory::open(dir, RULES).unwrap()))
}

fn stream() -> (Intake<fs::File>, fs::File) {
    let file = tempfile::tempfile().unwrap();
    (Intake::new(Target::Output(Output::new(file.try_clone().unwrap()))), file)
}

fn offer(name: &str, size: u64) -> Record {
    let name = RelativeName::new(name.as_bytes()).unwrap();
    Record::File(FileOffer { name, size, mode: 0o644, modified: (0, 0) })
}

fn end(contents: &[u8]) -> Record {
    let mut digester = Digester::default();
    digester.update(contents);
    Record::End { bytes: digester.bytes(), digest: digester.finish() }
}

fn finish(files: u64, bytes: u64) -> Record {
    Record::Finish(Totals { files, bytes })
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
    assert_eq!(totals, Some(Totals { files: 3, bytes: 5 }));
}

#[test]
fn a_stream_arrives() {
    let (mut intake, mut file) = stream();
    intake.record(Record::Stream).unwrap();
    intake.block(b"abc").unwrap();
    intake.block(b"de").unwrap();
    assert_eq!(intake.written(), 5);
    intake.record(end(b"abcde")).unwrap();
    assert_eq!(intake.record(finish(0, 5)).unwrap(), Some(Totals { files: 0, bytes: 5 }));
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
        &[finish(0, 0)],
        &[Record::Stream, Record::Stream],
        &[Record::Stream, finish(0, 0)],
        &[Record::Stream, end(b""), Record::Stream],
    ] {
        misplaced(records, stream().0);
    }
    assert!(matches!(files(dir.path()).block(b"x"), Err(Failure::Protocol { .. })));
    assert!(matches!(stream().0.block(b"x"), Err(Failure::Protocol { .. })));
    assert!(is_empty(dir.path()));
}
