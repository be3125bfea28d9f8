//! The uses of a message once it is folded.

use super::*;

/// Another process that sees a part of it would see the bytes written, or they are not written
/// where it looks.
#[test]
fn only_what_nobody_else_sees_is_given_to_be_written() {
    let sealed = Pool::new(SealedPages::new(16).unwrap());
    let heap = Pool::new(HeapPages::new(16).unwrap());
    for costs in [FREE, Costs::COPY_ONLY] {
        let folder = folder(costs);
        let lens = [PAGE, 2 * PAGE];
        let mut files = folder.fold(parts(&sealed, &lens).0).unwrap();
        let mut own = folder.fold(parts(&heap, &lens).0).unwrap();
        let both: Vec<Box<dyn Quiet>> =
            vec![Box::new(filled(&heap, &fresh(PAGE))), Box::new(filled(&sealed, &fresh(PAGE)))];
        let mut both = folder.fold(both).unwrap();
        assert!(files.as_mut().is_none() && both.as_mut().is_none() && own.as_mut().is_some());
    }
}

#[test]
fn parts_of_it_can_be_read() {
    let folder = folder(FREE);
    let pool = anonymous(&folder, 16);
    let (message, bytes) = parts(&pool, &[2 * PAGE, PAGE, 100]);
    let folded = folder.fold(message).unwrap();
    let mut to = [0; 300];
    for offset in [0, 1, PAGE, 3 * PAGE - 200, bytes.len() - 300] {
        assert_eq!((folded.read(offset, &mut to), &to[..]), (300, &bytes[offset..offset + 300]));
    }
    assert_eq!((folded.read(bytes.len() - 7, &mut to), &to[..7]), (7, &bytes[bytes.len() - 7..]));
    assert_eq!([bytes.len(), usize::MAX].map(|end| folded.read(end, &mut to)), [0, 0]);
}
