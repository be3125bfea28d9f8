//! The extents of a file: data and holes. See `lseek(2)`, `SEEK_DATA`.

use std::os::fd::AsFd;

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

/// The start of the data that are at `at` or behind it; `size` if only a hole follows.
///
/// A file system that does not say where its holes are has none. Moves the file's offset.
pub(super) fn data_from(file: impl AsFd, at: u64, size: u64) -> u64 {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => data.clamp(at, size),
        // Only a hole is left up to the end.
        Err(Errno::NXIO) => size,
        Err(_) => at,
    }
}

/// The end of the data at `at`: at a hole, or at `size`. Moves the file's offset.
pub(super) fn data_to(file: impl AsFd, at: u64, size: u64) -> u64 {
    match seek(file, SeekFrom::Hole(at)) {
        Ok(hole) if hole > at => hole.min(size),
        _ => size,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn all_that_was_written_is_in_data() {
        let size = 64 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(b"x", 9 << 20).unwrap();
        file.write_all_at(b"x", 33 << 20).unwrap();
        let (mut at, mut data) = (0, Vec::new());
        while at < size {
            let from = data_from(&file, at, size);
            if from < size {
                at = data_to(&file, from, size);
                data.push(from..at);
            } else {
                at = size;
            }
        }
        assert!(data.iter().all(|part| part.start < part.end), "{data:?}");
        for byte in [9 << 20, 33 << 20] {
            assert!(data.iter().any(|part| part.contains(&byte)), "{data:?}");
        }
    }

    #[test]
    fn a_pipe_has_no_holes() {
        let (pipe, _into) = rustix::pipe::pipe().unwrap();
        assert_eq!((data_from(&pipe, 5, 9), data_to(&pipe, 5, 9)), (5, 9));
    }
}
