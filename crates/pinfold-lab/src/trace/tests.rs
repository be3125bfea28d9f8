//! Traces come back as they were; damaged ones are refused; recorded programs have the calls that
//! they make.

use std::{collections::BTreeSet, ffi::OsString, io::Cursor, sync::Arc};

use proptest::prelude::*;

use super::{
    read::Reader,
    record::{Ended, Recorded, Wishes, record},
    text::{self, Form},
    write::Writer,
    *,
};

fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    events.iter().try_for_each(|event| writer.event(event)).unwrap();
    assert_eq!(writer.events(), events.len() as u64);
    writer.finish().unwrap().0
}

/// All events up to the first error, and that.
fn read_back(bytes: &[u8]) -> (Vec<Event>, Option<TraceError>) {
    let mut all = Vec::new();
    match Reader::new(bytes) {
        Err(why) => (all, Some(why)),
        Ok(reader) => {
            for event in reader {
                match event {
                    Ok(event) => all.push(event),
                    Err(why) => return (all, Some(why)),
                }
            }
            (all, None)
        }
    }
}

fn as_text(form: Form, events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = text::Writer::new(form, &mut bytes);
    events.iter().try_for_each(|event| writer.event(event)).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

fn from_text(form: Form, bytes: &[u8]) -> Result<Vec<Event>, TraceError> {
    let mut all = Vec::new();
    text::read(form, Cursor::new(bytes), |event| {
        all.push(event.clone());
        Ok(())
    })?;
    Ok(all)
}

fn any_event() -> impl Strategy<Value = Event> {
    let thread = (0u32..4, any::<u32>(), "[a-z ,\"\n]{0,6}");
    let object = (0..Kind::ALL.len(), 0u64..3, any::<u64>(), "[/a-zä,\"\\\\]{0,8}");
    let segments = prop::collection::vec((any::<u64>(), any::<u64>()), 0..4);
    let rest = (any::<u64>(), 0..Call::ALL.len(), any::<i32>(), any::<i64>());
    (thread, object, segments, rest).prop_map(|(thread, object, segments, rest)| Event {
        at_ns: rest.0,
        thread: Arc::new(Thread { pid: thread.0, tid: thread.1, name: thread.2 }),
        call: Call::ALL[rest.1],
        fd: rest.2,
        object: Arc::new(Object {
            kind: Kind::ALL[object.0],
            device: object.1,
            inode: object.2,
            name: object.3,
        }),
        segments: segments.into_iter().map(|(address, bytes)| Segment { address, bytes }).collect(),
        result: rest.3,
    })
}

proptest! {
    #[test]
    fn events_come_back(events in prop::collection::vec(any_event(), 0..40)) {
        let bytes = written(&events);
        let (back, error) = read_back(&bytes);
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert_eq!(&back, &events);
        for form in [Form::Csv, Form::Json] {
            let text = as_text(form, &events);
            prop_assert_eq!(&from_text(form, &text).unwrap(), &events);
        }
    }

    /// Events before the cut come back, and an error says that there is one.
    #[test]
    fn truncated_traces_are_errors(
        events in prop::collection::vec(any_event(), 1..20),
        part in 0.0..1.0f64,
    ) {
        let bytes = written(&events);
        let end = (part * bytes.len() as f64) as usize;
        let (back, error) = read_back(&bytes[..end]);
        let error = error.expect("an error");
        prop_assert_eq!(&back, &events[..back.len()]);
        match end {
            0..8 => prop_assert!(matches!(error, TraceError::NotATrace)),
            _ => prop_assert!(matches!(error, TraceError::Truncated { .. }), "{error}"),
        }
    }

    #[test]
    fn a_changed_byte_is_an_error(
        events in prop::collection::vec(any_event(), 1..20),
        part in 0.0..1.0f64,
        flip in 1u8..,
    ) {
        let mut bytes = written(&events);
        let at = (part * bytes.len() as f64) as usize;
        bytes[at] ^= flip;
        let (back, error) = read_back(&bytes);
        // The six bytes behind the version are kept free.
        prop_assert_eq!(error.is_none(), (10..16).contains(&at), "{:?}", error);
        prop_assert_eq!(&back, &events[..back.len()]);
    }

    #[test]
    fn noise_is_an_error(noise in prop::collection::vec(any::<u8>(), 0..200), sane: bool) {
        let mut bytes = if sane { written(&[]).into_iter().take(16).collect() } else { Vec::new() };
        bytes.extend(&noise);
        prop_assert!(read_back(&bytes).1.is_some());
        for form in [Form::Csv, Form::Json] {
            let _ = from_text(form, &noise);
        }
    }

    /// A block whose sum is right, but whose bytes are anybody's.
    #[test]
    fn blocks_of_noise_are_errors(noise in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut bytes: Vec<u8> = written(&[]).into_iter().take(16).collect();
        bytes.extend((noise.len() as u32).to_le_bytes());
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(write::sum(0, 3, &noise).to_le_bytes());
        bytes.extend(&noise);
        prop_assert!(read_back(&bytes).1.is_some());
    }
}

fn events_of(count: u64) -> Vec<Event> {
    let thread = Arc::new(Thread { pid: 7, tid: 8, name: "cat".into() });
    let object = Object { kind: Kind::Pipe, device: 1, inode: 2, name: "pipe:[2]".into() };
    let object = Arc::new(object);
    let one = |at: u64| Event {
        at_ns: 20_000 * at,
        thread: Arc::clone(&thread),
        call: if at.is_multiple_of(2) { Call::Read } else { Call::Write },
        fd: (at % 2) as i32,
        object: Arc::clone(&object),
        segments: vec![Segment { address: 0x7F00_0000_1000, bytes: 131_072 }],
        result: 131_072,
    };
    (0..count).map(one).collect()
}

#[test]
fn a_call_takes_eleven_bytes_and_blocks_are_told_apart() {
    let events = events_of(20_000);
    let mut bytes = written(&events);
    assert!(bytes.len() < 12 * events.len(), "{}", bytes.len());
    assert_eq!(read_back(&bytes).0, events);
    // Blocks in another order have their sums, and are refused.
    let block = |from: usize| -> std::ops::Range<usize> {
        let bytes = &bytes[from..];
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        from..from + 16 + length
    };
    let first = block(16);
    let second = block(first.end);
    let swapped = [&bytes[second.clone()], &bytes[first.clone()]].concat();
    bytes.splice(first.start..second.end, swapped);
    let (back, error) = read_back(&bytes);
    assert!(back.is_empty(), "{}", back.len());
    let words = error.unwrap().to_string();
    assert!(words.starts_with("block 0, which begins at byte 16, is damaged"), "{words}");
}

#[test]
fn errors_name_the_place() {
    let good = written(&events_of(1));
    let mut other = good.clone();
    other[8] = 3;
    let words = |bytes: &[u8]| read_back(bytes).1.unwrap().to_string();
    assert!(words(&other).contains("version 3"), "{}", words(&other));
    assert!(words(b"PINTR").contains("is no trace"));
    assert!(words(&[&good[..], b"x"].concat()).contains("bytes follow the end"));
    let cut = words(&good[..good.len() - 1]);
    assert_eq!(
        cut,
        format!(
            "it is cut off in block 1, at byte {}: all before that block is good",
            good.len() - 1
        )
    );
    let line = |form, text: &str| from_text(form, text.as_bytes()).unwrap_err().to_string();
    assert!(line(Form::Json, "\n{\"at_ns\":1}\n").starts_with("line 2: missing field"));
    let csv = String::from_utf8(as_text(Form::Csv, &events_of(1))).unwrap();
    for (from, to, says) in [
        ("0x7f0000001000+131072", "7f", "line 2: 7f is no segment"),
        (",read,", ",reed,", "line 2: reed is none of read, write"),
        (",pipe,", ",tube,", "line 2: tube is none of socket, pipe"),
        (",131072,", ",", "line 2: 11 fields in place of 12"),
        (",131072,", ",x,", "line 2: "),
    ] {
        let text = csv.replacen(from, to, 1);
        assert_ne!(text, csv);
        assert!(line(Form::Csv, &text).starts_with(says), "{}", line(Form::Csv, &text));
    }
}

#[test]
fn cuts_and_totals() {
    let events = events_of(10);
    let chosen = |cut: cut::Cut| events.iter().filter(|it| cut.takes(it)).count();
    let none = cut::Cut::default;
    assert_eq!(chosen(none()), 10);
    assert_eq!(chosen(cut::Cut { from_ns: Some(40_000), until_ns: Some(80_000), ..none() }), 2);
    for (word, count) in [("7", 10), ("8", 0), ("cat", 10), ("dog", 0)] {
        assert_eq!(chosen(cut::Cut { processes: vec![word.into()], ..none() }), count, "{word}");
    }
    assert_eq!(chosen(cut::Cut { calls: vec![Call::Read], ..none() }), 5);
    assert_eq!(chosen(cut::Cut { kinds: vec![Kind::Socket, Kind::File], ..none() }), 0);
    let mut summary = summary::Summary::default();
    events.iter().for_each(|event| summary.add(event));
    let rows = summary.rows();
    assert_eq!((rows.len(), summary.events, summary.last_ns), (2, 10, 180_000));
    let row = &rows[0];
    assert_eq!((row.calls, row.bytes, row.buffers, row.reused), (5, 5 * 131_072, 1, 4));
}

#[test]
fn only_memory_that_was_used_counts() {
    let mut event = events_of(1).remove(0);
    event.segments = vec![
        Segment { address: 1, bytes: 4 },
        Segment { address: 9, bytes: 4 },
        Segment { address: 20, bytes: 4 },
    ];
    for (result, used) in
        [(0, vec![]), (-11, vec![]), (5, vec![(1, 4), (9, 1)]), (8, vec![(1, 4), (9, 4)])]
    {
        event.result = result;
        let found: Vec<_> = event.used().map(|it| (it.address, it.bytes)).collect();
        assert_eq!(found, used);
    }
    assert_eq!(event.asked(), 12);
}

/// Records a program. `None` where the kernel lets nobody watch.
fn recorded(words: &[&str], wishes: &Wishes) -> Option<(Recorded, Vec<Event>)> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let mut bytes = Vec::new();
    match record(&words, wishes, &mut bytes, |_| {}) {
        Ok(recorded) => {
            let (events, error) = read_back(&bytes);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(recorded.events, events.len() as u64);
            Some((recorded, events))
        }
        Err(TraceError::Watch(why)) if why.call != "execvp" => {
            eprintln!("SKIPPED: recording programs: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn exited(status: i32) -> Ended {
    Ended::Exited(status)
}

#[test]
fn dd_has_its_blocks_and_one_buffer() {
    let words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=3000", "count=25", "status=none"];
    let Some((recorded, events)) = recorded(&words, &Wishes::default()) else { return };
    assert_eq!((recorded.ended, recorded.unread, recorded.foreign), (exited(0), 0, 0));
    for (call, name) in [(Call::Read, "/dev/zero"), (Call::Write, "/dev/null")] {
        let own: Vec<&Event> = events.iter().filter(|it| it.object.name == name).collect();
        assert_eq!(own.len(), 25, "{name}");
        assert!(own.iter().all(|it| it.call == call && it.result == 3000 && it.asked() == 3000));
        let buffers: BTreeSet<u64> = own.iter().map(|it| it.segments[0].address).collect();
        assert_eq!(buffers.len(), 1, "{name}");
        assert!(own.iter().all(|it| it.object.kind == Kind::Device && it.thread.name == "dd"));
    }
}

#[test]
fn children_pipes_and_statuses() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, vec![7; 100_000]).unwrap();
    let script = format!("head -c 70000 {0} | wc -c > {0}.count; exit 3", file.display());
    let pipes = Wishes { kinds: vec![Kind::Pipe], names: false };
    let Some((recorded, events)) = recorded(&["sh", "-c", &script], &pipes) else { return };
    assert_eq!(recorded.ended, exited(3));
    assert_eq!(std::fs::read_to_string(format!("{}.count", file.display())).unwrap(), "70000\n");
    for (name, way) in [("head", Way::Out), ("wc", Way::In)] {
        let moved =
            |it: &Event| (it.thread.name == name && it.call.way() == way).then(|| it.moved());
        assert_eq!(events.iter().filter_map(moved).sum::<u64>(), 70_000, "{name}");
    }
    assert!(events.iter().all(|it| it.object.kind == Kind::Pipe && it.object.name.is_empty()));
}

#[test]
fn a_program_that_is_not_there() {
    let words = ["/nowhere/program".into()];
    let error = record(&words, &Wishes::default(), Vec::new(), |_| {}).unwrap_err().to_string();
    assert!(error.contains("execvp") || error.contains("ptrace"), "{error}");
}

/// A trace that cannot be written leaves the program alone.
#[test]
fn the_program_goes_on_without_its_trace() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let script = format!(
        "dd if=/dev/zero of=/dev/null bs=1 count=9000 status=none; echo done > {}",
        file.display()
    );
    let words = ["sh".into(), "-c".into(), script.into()];
    let failed = record(&words, &Wishes::default(), Full(100), |_| {}).unwrap_err();
    match failed {
        TraceError::Write(_) => {
            assert_eq!(std::fs::read_to_string(file).unwrap(), "done\n");
        }
        TraceError::Watch(why) => eprintln!("SKIPPED: recording programs: {why}"),
        other => panic!("{other}"),
    }
}
