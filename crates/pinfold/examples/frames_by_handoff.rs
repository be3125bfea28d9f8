//! A camera gives frames away, without a copy; a viewer looks at them where they are. Run it:
//! `cargo run --example frames_by_handoff`.
//!
//! The program starts itself a second time, with the address as its argument; that process is the
//! camera.

use std::{env, error::Error, process::Command, time::Duration};

use pinfold::{Arena, Endpoint, Path};

const FRAMES: u64 = 200;
const FRAME_BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
const FRAME: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = env::args().nth(1) {
        return Ok(give_frames(&address)?);
    }
    let address = format!("local:frames-{}", std::process::id());
    let endpoint = Endpoint::listen(&address)?;
    let mut camera = Command::new(env::current_exe()?).arg(&address).spawn()?;
    let peer = endpoint.accept_timeout(PATIENCE)?;

    let mut viewed_in_place = 0;
    for number in 0..FRAMES {
        let view = endpoint.recv_view_timeout(peer, FRAME, PATIENCE)?;
        assert_eq!(view.len(), FRAME_BYTES);
        // The header, and one line in the middle of the picture.
        let mut header = [0; 8];
        let mut line = [0; 1920];
        view.read(0, &mut header)?;
        view.read(FRAME_BYTES / 2, &mut line)?;
        assert_eq!(u64::from_le_bytes(header), number);
        assert!(line.iter().all(|&pixel| pixel == number as u8));
        viewed_in_place += u64::from(view.receipt().path == Path::Handoff);
        // Dropping the view returns the memory to the camera's arena.
    }

    assert!(camera.wait()?.success());
    println!("{FRAMES} frames of {FRAME_BYTES} bytes came, {viewed_in_place} without any copy");
    Ok(())
}

fn give_frames(address: &str) -> pinfold::Result<()> {
    let endpoint = Endpoint::new()?;
    let peer = endpoint.connect(address)?;
    let arena = Arena::new()?;
    for number in 0..FRAMES {
        // The memory of frames that are back is used again.
        let mut frame = arena.alloc(FRAME_BYTES)?;
        frame.fill(number as u8);
        frame[..8].copy_from_slice(&number.to_le_bytes());
        // Waits while the viewer has as much as it may have (`Builder::given_bytes_max`).
        endpoint.give(peer, FRAME, frame)?;
    }
    endpoint.drain(PATIENCE)
}
