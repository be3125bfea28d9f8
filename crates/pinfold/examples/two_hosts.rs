//! A message over TCP, between endpoints that share a key. Run it: `cargo run --example two_hosts`;
//! it then starts itself a second time, and both talk over the loopback.
//!
//! Between two hosts: make a key by `head -c 32 /dev/urandom > key; chmod 600 key` and copy it to
//! both; then run `two_hosts key tcp:0.0.0.0:7000` at one, and after that `two_hosts key
//! tcp:HOST:7000 call` at the other.

use std::{
    env,
    error::Error,
    fs::{self, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{self, Command},
    time::Duration,
};

use pinfold::{Builder, Endpoint};

const PATIENCE: Duration = Duration::from_secs(10);
const QUESTION: u64 = 1;
const ANSWER: u64 = 2;
const THANKS: u64 = 3;
const BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [key, address] => {
            let server = builder(Path::new(key)).listen(address).build()?;
            Ok(serve(&server, Duration::from_secs(3600))?)
        }
        [key, address, _] => Ok(call(Path::new(key), address)?),
        _ => both(),
    }
}

/// Serves in this process and calls in another.
fn both() -> Result<(), Box<dyn Error>> {
    let key = new_key()?;
    let server = builder(&key).listen("tcp:127.0.0.1:0").build()?;
    let address = server.listens_at().expect("it listens");
    let client = Command::new(env::current_exe()?).arg(&key).args([&address, "call"]).spawn();
    let served = client.map(|client| (serve(&server, PATIENCE), client));
    fs::remove_file(&key)?;
    let (served, mut client) = served?;
    served?;
    assert!(client.wait()?.success());
    Ok(())
}

fn builder(key: &Path) -> Builder {
    Endpoint::builder()
        .key_file(key)
        // TLS 1.3. Both sides have to say so.
        .encrypt(cfg!(feature = "tls"))
        // Otherwise two processes on one host would find that out and use shared memory.
        .local_shortcut(false)
}

fn serve(server: &Endpoint, patience: Duration) -> pinfold::Result<()> {
    let peer = server.accept_timeout(patience)?;
    let question = server.recv_timeout(peer, QUESTION, PATIENCE)?;
    let sum: u64 = question.iter().map(|&byte| u64::from(byte)).sum();
    server.send(peer, ANSWER, &sum.to_le_bytes())?;
    // The answer is on its way; this says that it has arrived.
    server.recv_timeout(peer, THANKS, PATIENCE)?;
    Ok(())
}

fn call(key: &Path, address: &str) -> pinfold::Result<()> {
    let client = builder(key).build()?;
    let peer = client.connect_wait(address, PATIENCE)?;
    let question = vec![3; BYTES];
    let receipt = client.send(peer, QUESTION, &question)?;
    let answer = client.recv_timeout(peer, ANSWER, PATIENCE)?;
    assert_eq!(*answer, (3 * BYTES as u64).to_le_bytes());
    client.send(peer, THANKS, &[])?;
    let suite = client.peer(peer).and_then(|info| info.encryption).unwrap_or("no encryption");
    println!("{BYTES} bytes were summed at the other side of TCP ({suite}): {receipt}");
    Ok(())
}

/// A key in a file that only this user can read.
fn new_key() -> std::io::Result<PathBuf> {
    let mut key = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    let path = env::temp_dir().join(format!("two-hosts-key-{}", process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(&key)?;
    Ok(path)
}
