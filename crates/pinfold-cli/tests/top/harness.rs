//! Runs of `pinfold top`, and their output.

use std::process::Command;

use serde_json::Value;

/// The command.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");

/// The report of one endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub own: Value,
    pub peers: Vec<Value>,
}

/// All of the output.
#[derive(Clone, Debug)]
pub struct Look {
    pub endpoints: Vec<Endpoint>,
    pub troubles: Vec<Value>,
    pub summary: Value,
}

impl Look {
    pub fn of(text: &str) -> Look {
        let (mut endpoints, mut troubles, mut summary) = (Vec::new(), Vec::new(), Value::Null);
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(line["time_ms"].as_u64().unwrap() > 0);
            match line["kind"].as_str().unwrap() {
                "endpoint" => endpoints.push(Endpoint { own: line, peers: Vec::new() }),
                "peer" => {
                    let of: &mut Endpoint = endpoints.last_mut().expect("an endpoint");
                    assert_eq!(line["of"], of.own["id"]);
                    of.peers.push(line);
                }
                "trouble" => troubles.push(line),
                "summary" => assert!(std::mem::replace(&mut summary, line).is_null()),
                other => panic!("{other}?"),
            }
        }
        assert_eq!(summary["endpoints"], endpoints.len());
        Look { endpoints, troubles, summary }
    }

    /// The only endpoint.
    #[track_caller]
    pub fn endpoint(self) -> Endpoint {
        assert_eq!(self.troubles, Vec::<Value>::new());
        let [endpoint] = &self.endpoints[..] else { panic!("{:#?}", self.endpoints) };
        endpoint.clone()
    }

    /// The endpoints of a process.
    pub fn of_process(&self, pid: u32) -> Vec<&Endpoint> {
        self.endpoints.iter().filter(|endpoint| endpoint.own["pid"] == pid).collect()
    }
}

/// The output of the command.
#[track_caller]
pub fn run(words: &[&str]) -> String {
    said(Command::new(PROGRAM).args(words))
}

/// The output of a command.
#[track_caller]
pub fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {error}", output.status);
    assert_eq!(error, "");
    String::from_utf8(output.stdout).unwrap()
}

/// The status and the words with which the command refused.
#[track_caller]
pub fn refused(words: &[&str]) -> (i32, String) {
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{words:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[track_caller]
pub fn look(words: &[&str]) -> Look {
    Look::of(&run(words))
}

/// The endpoints of one process.
#[track_caller]
pub fn look_at(pid: u32) -> Look {
    look(&["top", "--json", "--pid", &pid.to_string()])
}

/// All endpoints.
#[track_caller]
pub fn every() -> Look {
    look(&["top", "--json"])
}
