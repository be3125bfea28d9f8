//! The waits of an honest peer without attackers: alone, and beside processes that only compute.

use pinfold_tests::{Args, Stage, stage::all_end_well};

use super::spin;

#[test]
#[ignore = "measures"]
fn who_is_not_attacked() {
    for others in [0, 1, 3] {
        let stage = Stage::new(60);
        let mut beset =
            stage.role("beset").with("way", "listens").with("at", "local:victim").spawn();
        let at = beset.hear();
        let computers: Vec<_> = (0..others).map(|_| stage.role("computer").spawn()).collect();
        let attack = match others {
            0 => "nobody".to_owned(),
            others => format!("nobody, beside {others} that compute"),
        };
        let mut friends = [0; 2].map(|_| {
            let mut friend = stage.role("friend").with("at", &at).with("attack", &attack).spawn();
            friend.expect("through");
            beset.expect("through");
            friend
        });
        for mut computer in computers {
            computer.kill();
            computer.end();
        }
        friends.iter_mut().for_each(|friend| friend.say("end"));
        beset.say("end");
        all_end_well(&mut friends);
        beset.end_well();
    }
}

pub fn computer(_: &Args) {
    loop {
        spin(1_000_000);
    }
}
