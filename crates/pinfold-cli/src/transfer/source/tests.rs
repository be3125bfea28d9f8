//! Reading files to send: directories, pipes, holes, files that change meanwhile.

use std::{
    fs,
    io::Write,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, PermissionsExt, symlink},
    },
};

use rustix::process::geteuid;

use super::{
    super::{block::Blocks, digest::Digester, frame::BLOCK_BYTES},
    *,
};

fn block() -> Block {
    Blocks::new(1, true).make().unwrap()
}

/// All pieces of reading `files`, at most four blocks ahead.
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
    plan.files.iter().flatten().map(|entry| entry.name().to_string()).collect()
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
    let inside = [
        "tree/a",
        "tree/b",
        "tree/empty",
        "tree/sub",
        "tree/sub/deep",
        "tree/sub/deep/c",
        "tree/sub/ü\\n",
    ];
    assert_eq!(names(&plan), [&["tree"][..], &inside].concat());
    assert_eq!(plan.expected, Totals { files: 4, directories: 4, bytes: 1 + 1 + 10 + 7 });
    // By way of a link it is the same, under the name of the link.
    symlink(&tree, dir.path().join("way")).unwrap();
    let by_link = Plan::new(&[dir.path().join("way")]).unwrap();
    assert_eq!((by_link.expected, by_link.skipped.len()), (plan.expected, 2));
    assert_eq!(names(&by_link)[..2], ["way", "way/a"]);
    let skipped: Vec<_> =
        plan.skipped.iter().map(|(path, what)| skipped_note(path, what)).collect();
    assert_eq!(skipped.len(), 2);
    assert!(skipped[0].ends_with("tree/link: skipped, it is a symbolic link"), "{skipped:?}");
    assert!(skipped[1].ends_with("tree/socket: skipped, it is a socket"), "{skipped:?}");
    // With a dot at the end it has no name of its own.
    let plan = Plan::new(&[tree.join("..")]).unwrap();
    assert_eq!(names(&plan)[..2], ["tree", "tree/a"]);
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
    // Directories of the same mode are united, and do not hide a file.
    fs::create_dir_all(path("d/d")).unwrap();
    fs::write(path("d/d/b"), "x").unwrap();
    let both = Plan::new(&[path("d"), path("d/d")]).unwrap();
    assert_eq!(names(&both), ["d", "d/a", "d/d", "d/d/b", "d/b"]);
    assert_eq!(both.expected, Totals { files: 3, directories: 2, bytes: 3 });
    fs::set_permissions(path("d/d"), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(matches!(Plan::new(&[path("d"), path("d/d")]), Err(Failure::Usage(_))));
    fs::create_dir(path("d/d/a")).unwrap();
    assert!(matches!(Plan::new(&[path("a"), path("d/d/a")]), Err(Failure::Usage(_))));
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    let socket = Plan::new(&[path("socket")]).unwrap_err();
    assert!(socket.to_string().ends_with("only files and directories are sent"), "{socket}");
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
    if geteuid().is_root() {
        // Root reads everything; tests/transfer.rs does it as nobody.
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
        assert_eq!(offer.size, Some(size as u64));
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
    let [Ok(Piece::Record(Record::Directory(_))), Err(Failure::Local { .. })] = &pieces[..] else {
        panic!("{pieces:?}");
    };
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
    let totals = Totals { bytes: 5, ..Totals::default() };
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

/// The file that these pieces make up: its size as offered, its contents, and the bytes in holes.
fn taken(pieces: Vec<Result<Piece, Failure>>) -> (Option<u64>, Vec<u8>, u64) {
    let (mut contents, mut holes, mut digester) = (Vec::new(), 0, Digester::default());
    let mut pieces = pieces.into_iter().map(|piece| piece.unwrap_or_else(|why| panic!("{why}")));
    let Some(Piece::Record(Record::File(offer))) = pieces.next() else { panic!() };
    for piece in pieces {
        match piece {
            Piece::Block(block) => {
                contents.extend_from_slice(block.bytes());
                digester.update(block.bytes());
            }
            Piece::Record(Record::Hole { bytes }) => {
                contents.resize(contents.len() + bytes as usize, 0);
                holes += bytes;
                digester.hole(bytes);
            }
            Piece::Record(Record::End { bytes, digest }) => {
                assert_eq!((bytes, digest), (contents.len() as u64, digester.finish()));
            }
            Piece::Record(Record::Finish(totals)) => assert_eq!(totals.files, 1),
            other => panic!("{other:?}"),
        }
    }
    (offer.size, contents, holes)
}

#[test]
fn what_the_kernel_makes_up_is_read_to_its_end() {
    let mut seen = 0;
    for name in [
        // Files of no size, of one that is too large, and of one that is right.
        "/proc/cpuinfo",
        "/proc/sys/kernel/ostype",
        "/proc/self/maps",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/devices/system/cpu/online",
        "/sys/kernel/notes",
    ] {
        let Ok(wanted) = fs::read(name) else { continue };
        let (size, contents, holes) = taken(read(&[name.into()]));
        if name != "/proc/self/maps" {
            assert!(contents == wanted, "{name}");
        }
        assert!(!contents.is_empty() && holes == 0, "{name}");
        assert!(size.is_none_or(|size| size == wanted.len() as u64), "{name}");
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn a_file_that_is_not_at_rest_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for (before, after) in [(0, 5), (5, 9 << 20), (9 << 20, (9 << 20) + 1), (9 << 20, 0)] {
        let path = dir.path().join("file");
        fs::write(&path, vec![b'x'; before]).unwrap();
        let name = RelativeName::new(b"file").unwrap();
        let entry = FileEntry { path: path.clone(), name, follow: false };
        let source = reader::Source::open(&entry).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(after as u64).unwrap();
        let how = if after > before { "it grew" } else { "it shrank" };
        let failure = source.check_change().unwrap_err();
        assert!(failure.to_string().contains(how), "{failure}");
        // /proc/kmsg answers this way when there is no news.
        let waits = source.count(Err(rustix::io::Errno::AGAIN)).unwrap_err();
        assert!(waits.to_string().contains("until something happens"), "{waits}");
    }
}

#[test]
fn holes_are_told_and_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    const SIZE: u64 = 64 << 20;
    for data in [&[][..], &[0], &[5 << 20], &[0, 33 << 20], &[SIZE - 1], &[0, SIZE - 1]] {
        let file = fs::File::create(&path).unwrap();
        file.set_len(SIZE).unwrap();
        for at in data {
            file.write_all_at(b"x", *at).unwrap();
        }
        if std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512 >= SIZE {
            return pinfold_tests::skip("this file system has no holes");
        }
        let (size, contents, holes) = taken(read(std::slice::from_ref(&path)));
        assert_eq!((size, contents.len() as u64), (Some(SIZE), SIZE));
        let found = contents.iter().enumerate().filter(|(_, byte)| **byte != 0);
        assert_eq!(found.map(|(at, _)| at as u64).collect::<Vec<_>>(), data);
        assert!(holes >= SIZE - data.len() as u64 * (1 << 20), "{data:?}: {holes}");
    }
}

#[test]
fn a_small_hole_is_one_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::File::create(&path).unwrap().set_len(100_000).unwrap();
    let (size, contents, holes) = taken(read(&[path]));
    assert_eq!((size, contents, holes), (Some(100_000), vec![0; 100_000], 100_000));
}
