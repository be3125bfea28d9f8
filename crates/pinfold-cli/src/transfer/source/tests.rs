use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
};

use super::*;

fn block() -> Block {
    Blocks::new(1, true).make().unwrap()
}

/// Everything that reading `files` hands out, at most four blocks ahead.
fn read(files: &[PathBuf]) -> Vec<Result<Piece, Failure>> {
    read_plan(Plan::new(files).unwrap(), |_| {})
}

/// As [`read`]; `meddle` runs before each piece is taken.
fn read_plan(plan: Plan, mut meddle: impl FnMut(usize)) -> Vec<Result<Piece, Failure>> {
    let (pieces_in, pieces) = async_channel::bounded(1);
    let (put_back, buffers) = async_channel::unbounded();
    put_back.send_blocking(block()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| Reader::new(pieces_in, Blocks::new(0, false), buffers).run(&plan));
        let mut all = Vec::new();
        loop {
            meddle(all.len());
            let Ok(piece) = pieces.recv_blocking() else { return all };
            if let Ok(Piece::Block(_)) = piece {
                // The reader may have ended.
                let _ = put_back.send_blocking(block());
            }
            all.push(piece);
        }
    })
}

fn names(plan: &Plan) -> Vec<String> {
    plan.files.iter().flatten().map(|entry| entry.name.to_string()).collect()
}

#[test]
fn a_directory_is_sent_under_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    for name in ["b", "a", "sub/deep/c", "sub/ü\n"] {
        fs::write(tree.join(name), name).unwrap();
    }
    symlink("a", tree.join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    let plan = Plan::new(std::slice::from_ref(&tree)).unwrap();
    assert_eq!(names(&plan), ["tree/a", "tree/b", "tree/sub/deep/c", "tree/sub/ü\\n"]);
    assert_eq!(plan.expected, Totals { files: 4, bytes: 1 + 1 + 10 + 7 });
    let skipped: Vec<_> =
        plan.skipped.iter().map(|(path, what)| skipped_note(path, what)).collect();
    assert_eq!(skipped.len(), 2);
    assert!(skipped[0].ends_with("tree/link: skipped, it is a symbolic link"), "{skipped:?}");
    assert!(skipped[1].ends_with("tree/socket: skipped, it is a socket"), "{skipped:?}");
    // With a dot at the end it has no name of its own.
    let plan = Plan::new(&[tree.join("..")]).unwrap();
    assert_eq!(names(&plan)[0], "tree/a");
}

#[test]
fn files_named_by_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("d")).unwrap();
    fs::write(path("d/a"), "x").unwrap();
    fs::write(path("a"), "x").unwrap();
    symlink("a", path("link")).unwrap();
    // A link that is named is followed.
    assert_eq!(names(&Plan::new(&[path("link")]).unwrap()), ["link"]);
    assert!(matches!(Plan::new(&[path("a"), path("d/a")]), Err(Failure::Usage(_))));
    assert!(matches!(Plan::new(&[path("a"), "-".into()]), Err(Failure::Usage(_))));
    let missing = Plan::new(&[path("missing")]).unwrap_err();
    assert_eq!(missing.status(), 5);
    assert!(missing.to_string().contains("missing: No such file"), "{missing}");
    let device = Plan::new(&["/dev/null".into()]).unwrap_err();
    assert_eq!(device.status(), 5);
    assert!(device.to_string().contains("it is a device"), "{device}");
    assert_eq!(Plan::new(&[]).unwrap().content(), Content::Stream);
    assert_eq!(Plan::new(&["-".into()]).unwrap().content(), Content::Stream);
}

#[test]
fn an_unreadable_file_is_found_before_anything_is_sent() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root reads everything; tests/transfer.rs does it as nobody");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(Plan::new(&[path]).unwrap_err().status(), 5);
}

#[test]
fn sizes_around_a_block() {
    let dir = tempfile::tempdir().unwrap();
    for size in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES] {
        let contents: Vec<u8> = (0..size).map(|i| (i / 3) as u8).collect();
        let path = dir.path().join("file");
        fs::write(&path, &contents).unwrap();
        let mut pieces = read(&[path]).into_iter().map(Result::unwrap);
        let Some(Piece::Record(Record::File(offer))) = pieces.next() else { panic!() };
        assert_eq!(offer.size, size as u64);
        let mut got = Vec::new();
        let end = loop {
            match pieces.next() {
                Some(Piece::Block(block)) => {
                    assert!((1..=BLOCK_BYTES).contains(&block.len()));
                    got.extend_from_slice(block.bytes());
                }
                Some(Piece::Record(Record::End { bytes, digest })) => break (bytes, digest),
                other => panic!("{other:?}"),
            }
        };
        assert!(got == contents);
        let mut digester = Digester::default();
        digester.update(&contents);
        assert_eq!(end, (size as u64, digester.finish()));
        assert!(matches!(pieces.next(), Some(Piece::Record(Record::Finish(_)))));
        assert!(pieces.next().is_none());
    }
}

#[test]
fn a_file_that_changes_is_an_error() {
    type Change = fn(&fs::File);
    let changes: [(&str, Change); 3] = [
        ("shrank", |file| file.set_len(5).unwrap()),
        ("grew", |file| file.set_len(9 << 20).unwrap()),
        ("changed", |mut file| {
            file.write_all(b"y").unwrap();
            let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
            file.set_modified(later).unwrap();
        }),
    ];
    for (how, change) in changes {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![b'x'; 8 << 20]).unwrap();
        let plan = Plan::new(std::slice::from_ref(&path)).unwrap();
        // The reader is at most a few blocks ahead when the second piece is taken.
        let mut pieces = read_plan(plan, |taken| {
            if taken == 1 {
                change(&fs::OpenOptions::new().write(true).open(&path).unwrap());
            }
        });
        let failure = pieces.pop().unwrap().unwrap_err();
        assert_eq!(failure.status(), 5);
        assert!(failure.to_string().contains(&format!("it {how} while it was read")), "{failure}");
        let ended =
            |piece: &Result<Piece, Failure>| matches!(piece, Ok(Piece::Record(Record::End { .. })));
        assert!(!pieces.iter().any(ended));
    }
}

#[test]
fn a_file_that_is_replaced_by_a_link_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let path = dir.path().join("d/file");
    fs::write(&path, "x").unwrap();
    let plan = Plan::new(&[dir.path().join("d")]).unwrap();
    fs::remove_file(&path).unwrap();
    symlink("/etc/hostname", &path).unwrap();
    let pieces = read_plan(plan, |_| {});
    assert!(matches!(pieces.as_slice(), [Err(Failure::Local { .. })]), "{pieces:?}");
}

#[test]
fn a_pipe_is_passed_on_as_it_fills() {
    let (out, into) = rustix::pipe::pipe().unwrap();
    let (pieces_in, pieces) = async_channel::bounded(1);
    let (put_back, buffers) = async_channel::unbounded();
    for _ in 0..2 {
        put_back.send_blocking(block()).unwrap();
    }
    let thread = std::thread::spawn(move || {
        Reader::new(pieces_in, Blocks::new(0, false), buffers).stream(out.as_fd()).unwrap()
    });
    let next = || pieces.recv_blocking().unwrap().unwrap();
    assert!(matches!(next(), Piece::Record(Record::Stream)));
    // The first bytes come although the pipe stays open.
    rustix::io::write(&into, b"hello").unwrap();
    assert!(matches!(next(), Piece::Block(block) if block.bytes() == b"hello"));
    drop(into);
    assert!(matches!(next(), Piece::Record(Record::End { bytes: 5, .. })));
    let totals = Totals { files: 0, bytes: 5 };
    assert!(matches!(next(), Piece::Record(Record::Finish(got)) if got == totals));
    thread.join().unwrap();
}

#[test]
fn reading_stops_when_nobody_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![b'x'; 4 << 20]).unwrap();
    let plan = Plan::new(&[path]).unwrap();
    let (pieces_in, pieces) = async_channel::bounded(1);
    let (put_back, buffers) = async_channel::unbounded();
    let thread = std::thread::spawn(move || {
        Reader::new(pieces_in, Blocks::new(0, false), buffers).run(&plan)
    });
    drop((pieces, put_back));
    thread.join().unwrap();
}
