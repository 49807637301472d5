//! Running the binary as a command, with an empty environment.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The binary with these arguments, nothing in its environment and nothing on standard input.
pub fn orrery<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// Runs a command to its end: exit code, standard output, standard error.
pub fn run(command: &mut Command) -> (i32, String, String) {
    texts(command.output().unwrap())
}

/// Runs the binary to its end with this standard input.
pub fn run_with_input<A: AsRef<OsStr>>(arguments: &[A], input: &[u8]) -> (i32, String, String) {
    let mut child = orrery(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = input.to_vec();
    // On a thread of its own: a command that writes before it has read everything must not block. It may also end early.
    let feeder = std::thread::spawn(move || stdin.write_all(&bytes).ok());
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    texts(output)
}

fn texts(Output { status, stdout, stderr }: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A path as an argument.
pub fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}
