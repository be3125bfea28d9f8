#![allow(unsafe_code)]
//! A file of a file system that never reads it.
// Invariant: the mapping stays for good.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::fd::AsRawFd,
    path::Path,
    ptr, thread,
};

use rustix::mount::{MountFlags, mount};

/// The root, and its one file.
const ROOT: u64 = 1;
const FILE: u64 = 2;
// Numbers of `linux/fuse.h`.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;

/// Mounts the file system in `dir`, serves it, and maps its file. A thread that touches the mapping
/// waits.
///
/// # Errors
/// Where the kernel, or this user, has no such file systems.
pub fn mapped(dir: &Path, len: usize) -> io::Result<*mut u8> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={}\0",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    fs::create_dir_all(dir)?;
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).expect("one nul");
    mount("never", dir, "fuse", MountFlags::empty(), options)?;
    thread::spawn(move || serve(device, len as u64));
    let file = File::open(dir.join("file"))?;
    // SAFETY: a new mapping.
    let at = unsafe {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)?
    };
    Ok(at.cast())
}

/// Answers everything but reads.
fn serve(mut device: File, len: u64) {
    let mut request = vec![0; 1 << 18];
    while let Ok(40..) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| request[at + i]));
        let (call, node) = (word(4), u64::from(word(16)));
        let mut attributes = [node, len, 0, 0, 0, 0, 0, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
        let (mode, links) = if node == ROOT { (0o40755u32, 2u32) } else { (0o100_444, 1) };
        attributes[60..64].copy_from_slice(&mode.to_ne_bytes());
        attributes[64..68].copy_from_slice(&links.to_ne_bytes());
        let answer = match call {
            READ | FORGET => continue,
            INIT => {
                let mut answer = vec![0; 64];
                for (at, value) in [(0, 7u32), (4, 31), (20, 4096)] {
                    answer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
                }
                Ok(answer)
            }
            LOOKUP => {
                attributes[0..8].copy_from_slice(&FILE.to_ne_bytes());
                attributes[60..64].copy_from_slice(&0o100_444u32.to_ne_bytes());
                let head = [FILE, 0, 60, 60, 0].map(u64::to_ne_bytes).concat();
                Ok([head, attributes].concat())
            }
            GETATTR => Ok([[60, 0].map(u64::to_ne_bytes).concat(), attributes].concat()),
            OPEN => Ok(vec![0; 16]),
            _ => Err(-libc::ENOSYS),
        };
        let (error, body) = answer.map_or_else(|errno| (errno, Vec::new()), |body| (0, body));
        let mut reply = (16 + body.len() as u32).to_ne_bytes().to_vec();
        reply.extend(error.to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        let _ = device.write(&reply);
    }
}
