//! A program's translations, here those of a process that sends what a shell script writes.

use super::{super::read::Reader, *};

fn events(bytes: &[u8]) -> Vec<Event> {
    Reader::new(bytes).unwrap().map(Result::unwrap).collect()
}

fn of(pid: u32, endpoint: u64, level: TranslationLevel) -> Translated {
    Translated { pid, endpoint, address: 0x7000 + u64::from(pid), bytes: 4096, level }
}

/// The recorder's child waits for a byte; meanwhile this process sends in its place.
fn recorded(send: impl FnOnce(&UnixDatagram) + Send) -> (Recorded, Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let (note, go) = (folder.path().join("note"), folder.path().join("go"));
    let script = format!(
        "printf %s \"$PINFOLD_TRANSLATIONS\" > {0}.new; mv {0}.new {0}; \
         while [ ! -e {1} ]; do sleep 0.01; done; exit 5",
        note.display(),
        go.display()
    );
    let mut bytes = Vec::new();
    let recorded = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !note.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let socket = UnixDatagram::unbound().unwrap();
            socket.connect(fs::read_to_string(&note).unwrap()).unwrap();
            send(&socket);
            fs::File::create(&go).unwrap().flush().unwrap();
        });
        record(&["sh".into(), "-c".into(), script.into()], &mut bytes, |_| {}).unwrap()
    });
    let place = fs::read_to_string(&note).unwrap();
    assert!(!Path::new(&place).parent().unwrap().exists(), "{place} is left");
    (recorded, events(&bytes))
}

#[test]
fn translations_become_events_in_their_order() {
    use TranslationLevel::{PinCache, Pinned, Tlb};
    let own = std::process::id();
    let all: Vec<Translated> =
        (0..3000).map(|at| of(own, at / 1000, [Pinned, Tlb, PinCache][at as usize % 3])).collect();
    let (recorded, events) = recorded(|socket| {
        for one in &all {
            assert_eq!(socket.send(&one.to_bytes()).unwrap(), Translated::BYTES);
        }
        socket.send(b"nonsense").unwrap();
        socket.send(&[0; 100]).unwrap();
    });
    assert_eq!(recorded, Recorded { ended: Ended::Exited(5), events: 3000, foreign: 2 });
    assert_eq!(events.len(), all.len());
    for (event, one) in events.iter().zip(&all) {
        assert_eq!((event.call, event.object.inode), (call_of(one.level), one.endpoint));
        assert_eq!(event.segments, [Segment { address: one.address, bytes: one.bytes }]);
        assert_eq!((event.result, event.object.kind), (4096, Kind::Endpoint));
        assert_eq!((event.thread.pid, event.fd), (own, -1));
    }
    assert!(events.windows(2).all(|two| two[0].at_ns <= two[1].at_ns));
    let comm = fs::read_to_string("/proc/self/comm").unwrap();
    assert!(events.iter().all(|it| it.thread.name == comm.trim_end()));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let why = record(&["/nowhere/program".into()], Vec::new(), |_| {}).unwrap_err().to_string();
    assert!(why.contains("/nowhere/program"), "{why}");
}

/// Version 1 has no translations: a file that says so and has some is damaged.
#[test]
fn the_first_version_has_neither_these_calls_nor_this_kind() {
    let thread = Arc::new(Thread { pid: 1, tid: 1, name: "x".into() });
    let pipe = Object { kind: Kind::Pipe, device: 0, inode: 1, name: String::new() };
    let written = |call: Call, object: Arc<Object>, version: u8| {
        let mut writer = Writer::new(Vec::new()).unwrap();
        let (thread, segments) = (Arc::clone(&thread), Vec::new());
        let event = Event { at_ns: 0, thread, call, fd: 0, object, segments, result: 0 };
        writer.event(&event).unwrap();
        let mut bytes = writer.finish().unwrap().0;
        bytes[8] = version;
        let read: Result<Vec<Event>, TraceError> = Reader::new(&bytes[..]).unwrap().collect();
        read.map(|all| all.len()).map_err(|why| why.to_string())
    };
    let pipe = Arc::new(pipe);
    assert_eq!(written(Call::CopyFileRange, Arc::clone(&pipe), 1), Ok(1));
    for version in [1, 2] {
        for (call, object) in [(Call::TlbHit, Arc::clone(&pipe)), (Call::Read, endpoint(1))] {
            let read = written(call, object, version);
            assert_eq!(read.is_ok(), version == 2, "{call}: {read:?}");
            assert!(read.is_ok() || read.unwrap_err().contains("makes no sense"), "{call}");
        }
    }
}
