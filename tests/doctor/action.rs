//! `ci/github/install`: the released program from a server, its checksum, and what happens without one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use sha2::{Digest, Sha256};

use super::{Machine, said};

/// Answers every request with the file of that path below a folder.
fn serve(folder: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), &folder);
        }
    });
    address
}

fn answer(mut stream: TcpStream, folder: &std::path::Path) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let request = lines.next().unwrap().unwrap();
    while !lines.next().unwrap().unwrap().is_empty() {}
    let path = request.split(' ').nth(1).unwrap().trim_start_matches('/');
    let (status, body) = match fs::read(folder.join(path)) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
}

/// A checkout of the action in version 1.2.3 whose release is on a server, on a runner without Rust.
struct Runner {
    machine: Machine,
    archive: PathBuf,
    sums: PathBuf,
    server: String,
}

impl Runner {
    fn new() -> Runner {
        let machine = Machine::with(&[
            "sh",
            "sed",
            "head",
            "uname",
            "grep",
            "find",
            "sort",
            "xargs",
            "sha256sum",
            "cut",
            "mkdir",
            "curl",
            "tar",
            "gzip",
            "rm",
            "dirname",
        ]);
        machine.file("Cargo.toml", "version = \"1.2.3\"\n");
        machine.file("src/main.rs", "fn main() {}\n");
        let scripts = [
            ("install", include_str!("../../ci/github/install")),
            (
                "source-digest",
                include_str!("../../ci/github/source-digest"),
            ),
        ];
        // A checkout of its own: tests write their files beside it.
        let checkout = machine.path().join("_actions/acme/perfquilt/v1.2.3");
        fs::create_dir_all(checkout.join("ci/github")).unwrap();
        for name in ["Cargo.toml", "src"] {
            fs::rename(machine.path().join(name), checkout.join(name)).unwrap();
        }
        for (name, text) in scripts {
            let path = checkout.join("ci/github").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }

        let name = format!(
            "perfquilt-1.2.3-{}-unknown-linux-musl",
            std::env::consts::ARCH
        );
        let files = machine.path().join("server/v1.2.3");
        let folder = files.join(&name);
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("perfquilt");
        fs::write(&program, "#!/bin/sh\necho perfquilt 1.2.3\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let packed = Command::new("tar")
            .args(["-czf", &format!("{name}.tar.gz"), &name])
            .current_dir(&files)
            .status()
            .unwrap();
        assert!(packed.success());
        let archive = files.join(format!("{name}.tar.gz"));

        let sums = checkout.join("ci/github/checksums");
        let digest = machine.run(
            &checkout.join("ci/github/source-digest"),
            &[checkout.to_str().unwrap()],
        );
        let text = format!(
            "# a remark\n{}  source\n{}  {name}.tar.gz\n",
            String::from_utf8(digest.stdout).unwrap().trim(),
            hex::encode(Sha256::digest(fs::read(&archive).unwrap())),
        );
        fs::write(&sums, text).unwrap();
        let server = serve(machine.path().join("server"));
        Runner {
            machine,
            archive,
            sums,
            server,
        }
    }

    fn install(&self) -> Output {
        let script = self.sums.with_file_name("install");
        let folder = self.machine.path().join("installed");
        self.machine
            .run(&script, &[folder.to_str().unwrap(), &self.server])
    }

    /// The version that the installed program prints; `None` without one.
    fn installed(&self) -> Option<String> {
        let program = self.machine.path().join("installed/bin/perfquilt");
        let output = Command::new(program).arg("--version").output().ok()?;
        String::from_utf8(output.stdout).ok()
    }

    /// Adds a cargo that notes its arguments.
    fn with_cargo(self) -> Runner {
        let calls = self.machine.path().join("calls");
        self.machine
            .script("cargo", &format!("echo \"$*\" >> {}", calls.display()));
        self
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.machine.path().join("calls")).unwrap_or_default()
    }
}

#[test]
fn the_released_program_is_installed_without_rust() {
    let runner = Runner::new();
    let output = runner.install();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("checksum verified"));
    assert_eq!(runner.installed().unwrap(), "perfquilt 1.2.3\n");
}

#[test]
fn a_file_with_another_checksum_is_refused_even_with_cargo_there() {
    let runner = Runner::new().with_cargo();
    let mut bytes = fs::read(&runner.archive).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&runner.archive, bytes).unwrap();
    let output = runner.install();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("SHA-256 differs"),
        "{}",
        said(&output)
    );
    assert_eq!(runner.installed(), None);
    assert_eq!(runner.calls(), "");
}

#[test]
fn sources_that_are_not_the_releases_are_compiled() {
    let runner = Runner::new().with_cargo();
    let main = runner.sums.with_file_name("../../src/main.rs");
    fs::write(main, "fn main() { other() }\n").unwrap();
    let output = runner.install();
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        runner
            .calls()
            .starts_with("install --quiet --locked --path")
    );
    assert!(said(&output).contains("not the sources of release 1.2.3"));
    assert_eq!(runner.installed(), None);
}

#[test]
fn a_version_without_a_release_is_compiled() {
    let runner = Runner::new().with_cargo();
    fs::write(&runner.sums, "# none yet\n").unwrap();
    let output = runner.install();
    assert!(output.status.success(), "{}", said(&output));
    assert!(runner.calls().starts_with("install "), "{}", said(&output));
}

#[test]
fn without_the_file_and_without_cargo_the_error_says_so() {
    let runner = Runner::new();
    fs::remove_file(&runner.archive).unwrap();
    let output = runner.install();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains("::warning::the released program cannot be downloaded"),
        "{said}"
    );
    assert!(said.contains("nor cargo to compile it"), "{said}");
}

#[test]
fn the_address_is_the_repository_that_the_action_comes_from() {
    // A curl that refuses, and notes its last argument.
    let runner = Runner::new();
    let calls = runner.machine.path().join("calls");
    fs::remove_file(runner.machine.path().join("bin/curl")).unwrap();
    runner.machine.script(
        "curl",
        &format!(
            "for last; do :; done; echo $last >> {}; exit 22",
            calls.display()
        ),
    );
    let script = runner.sums.with_file_name("install");
    let folder = runner.machine.path().join("installed");
    let output = runner.machine.run(&script, &[folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    // The address that `cargo binstall` makes of Cargo.toml.
    let manifest: toml::Table = include_str!("../../Cargo.toml").parse().unwrap();
    let template = manifest["package"]["metadata"]["binstall"]["pkg-url"].as_str();
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let expected = template
        .unwrap()
        .replace("{ repo }", "https://github.com/acme/perfquilt")
        .replace("{ version }", "1.2.3")
        .replace("{ target }", &target);
    assert_eq!(runner.calls().trim(), expected);
}
