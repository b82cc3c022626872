//! The examples of CONTRIBUTING.md: it links to the files below `tests/contributing/`, which are compiled and run here, and
//! its Rust blocks are lines of the program.

#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use perfquilt_bench::server::{Scratch, ServerSpace};
use perfquilt_bench::workload::Clients;
use perfquilt_config::Workload;
use perfquilt_config::workspace::Workspace;
use perfquilt_forge::{Draft, Forge as _, PostOptions};
use perfquilt_judge::attribution::attribute_with;
use perfquilt_model::error::Error;
use perfquilt_model::failure::Failure;
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;
use perfquilt_report::{EXPORTERS, Exporter, Notice, ReportData, comment};
use serde_json::Value;

/// `crates/report/src/export/` with the example of a format.
#[path = "contributing"]
mod export {
    pub use perfquilt_report::{ExportedReport, Exporter, ReportData};

    mod badge;

    pub const BADGE: &Exporter = &badge::BADGE;
}

/// `crates/bench/src/workload/` with the example of a client.
#[path = "contributing"]
mod workload {
    pub use perfquilt_bench::workload::{
        BlockSlices, Client, ClientFailure, Environment, Requests, TimedBlock, WorkloadKind,
        check_count, rounds, rows, settings,
    };

    mod line;

    pub const LINE: WorkloadKind = line::KIND;
}

/// `crates/bench/src/server/` with the example of an adapter.
#[path = "contributing"]
mod server {
    pub use perfquilt_bench::server::{
        AdapterKind, AdapterSetup, ClientThreads, Launch, ListenAddress, Running, ServerAdapter,
        StartPlan, Stop, copy_tree,
    };

    mod line_server;

    pub const LINE_SERVER: AdapterKind = line_server::KIND;
}

/// `crates/forge/src/` with the example of a forge.
#[path = "contributing"]
mod forge {
    pub use perfquilt_forge::{
        CreatedComment, Forge, ForgeComment, PullRequest, Repository, Target,
    };

    mod folder;

    pub use folder::Folder;
}

/// The Rust blocks of a page: the path in the comment `<!-- PATH -->` on the line before the block, and its text.
fn examples(page: &str) -> Vec<(Option<&str>, String)> {
    let mut found = Vec::new();
    let mut before = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line == "```rust" {
            let block = lines.by_ref().take_while(|line| *line != "```");
            let text = block.map(|line| format!("{line}\n")).collect();
            let comment = before.strip_prefix("<!-- ");
            let path = comment.and_then(|comment| comment.strip_suffix(" -->"));
            found.push((path, text));
        }
        before = line;
    }
    found
}

#[test]
fn the_examples_are_the_files_they_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let examples = examples(&page);
    assert!(!examples.is_empty());
    for (path, text) in examples {
        let path = path.unwrap_or_else(|| panic!("no comment names the file of\n{text}"));
        let file = std::fs::read_to_string(root.join(path)).unwrap();
        assert!(
            file.contains(&text),
            "{path} does not have the block in CONTRIBUTING.md:\n{text}"
        );
    }
    for entry in std::fs::read_dir(root.join("tests/contributing")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let link = format!("(tests/contributing/{name})");
        assert!(page.contains(&link), "CONTRIBUTING.md does not link {name}");
    }
}

#[test]
fn a_block_has_the_comment_before_it() {
    let page =
        "<!-- a.rs -->\n```rust\nfn a() {}\n\nfn b() {}\n```\n```sh\nls\n```\n\n```rust\n```\n";
    let found = examples(page);
    let first = "fn a() {}\n\nfn b() {}\n".to_owned();
    assert_eq!(found, [(Some("a.rs"), first), (None, String::new())]);
}

#[test]
fn the_example_of_a_format_exports_published_results() {
    let mut formats: Vec<&Exporter> = EXPORTERS.to_vec();
    formats.push(export::BADGE);
    let with_name = |name| formats.iter().filter(|format| format.name == name).count();
    assert_eq!(with_name("badge"), 1);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/results/2026-11-21-mariadb-10.11.18.jsonl.gz");
    let file = perfquilt_results::analyse::open(&path).unwrap();
    let file = perfquilt_store::jsonl::read(file, &path).unwrap();
    let attribution = attribute_with(
        &file.header,
        &file.observations,
        &file.supplement,
        &Meter::default_margin,
    )
    .unwrap();
    // The data of a caller that read the file line by line: the format requires the document alone.
    let data = ReportData::new(&attribution);
    let exported = formats.last().unwrap().export(&data).unwrap();
    let badge: Value = serde_json::from_str(&exported.text).unwrap();
    assert_eq!(badge["schemaVersion"], 1);
    assert_eq!(badge["message"], "+11.6 %, faster");
    assert_eq!(badge["color"], "brightgreen");
    let mut empty = attribution;
    empty.total.clear();
    let fault = export::BADGE.export(&ReportData::new(&empty)).unwrap_err();
    assert_eq!(fault.message(), "the whole series was not measured");
}

/// A server that answers lines over a Unix socket.
const LINE_SERVER: &str = r#"#!/usr/bin/perl
use strict;
use IO::Select;
use IO::Socket::UNIX;
my $listener = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 5) or die;
my $ready = IO::Select->new($listener);
while (1) {
    for my $socket ($ready->can_read) {
        if ($socket == $listener) {
            $ready->add($listener->accept);
        } elsif (sysread($socket, my $request, 4096)) {
            syswrite($socket, "answer to $request");
        } else {
            $ready->remove($socket);
            close($socket);
        }
    }
}
"#;

/// A workspace whose server and workload are the examples.
fn line_workspace(root: &Path) -> Workspace {
    let config = root.join("bench-config");
    std::fs::create_dir_all(config.join("workloads")).unwrap();
    let text = r#"
[upstream]
name = "line"
current = "1.0"

[recipe.quick]
system = "command"
binary = "bin/line-server"
install = { "bin/line-server" = "{build}/line-server" }

[server]
adapter = "line"

[preset.quick]
recipe = "quick"
workloads = ["hello"]
meters = ["time"]
blocks = 4
block_seconds = 1.0
"#;
    std::fs::write(config.join("perfquilt.toml"), text).unwrap();
    let workload =
        "description = 'says hello'\nkind = 'line'\n\n[line]\nrequest = 'hello'\nslice = 20\n";
    std::fs::write(config.join("workloads/hello.toml"), workload).unwrap();
    Workspace::open_with_cache(root, root.join("cache")).unwrap()
}

#[test]
fn the_examples_of_an_adapter_and_a_client_measure_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let ws = line_workspace(folder.path());
    // Neither is in the product's lists.
    assert!(perfquilt_bench::server::check(&ws.config).is_err());
    assert!(perfquilt_bench::workload::check(&ws.config).is_err());

    let built = folder.path().join("built");
    std::fs::create_dir_all(built.join("bin")).unwrap();
    let program = built.join("bin/line-server");
    std::fs::write(&program, LINE_SERVER).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();

    let kind = server::LINE_SERVER;
    (kind.check)(&ws.config.server).unwrap();
    let adapter = (kind.adapter)(server::AdapterSetup {
        server: ws.config.server.clone(),
        bench_config: ws.bench_config(),
        logs: folder.path().join("logs"),
    })
    .unwrap();
    let scratch = Scratch::open(
        &ws,
        ServerSpace {
            servers: 2,
            bytes: 0,
        },
    )
    .unwrap();
    let start = |point: Point| {
        let dir = scratch.fresh().unwrap();
        let running = adapter.start(&server::Launch::new("line", &built, &dir));
        (point, running.unwrap())
    };
    let mut servers = [start(Point::BASE), start(Point::Control)];

    let workload = ws.config.workload("hello").unwrap();
    let kinds = [workload::LINE];
    let clients = Clients::of_kinds(&kinds, &ws, "1.0", std::slice::from_ref(workload)).unwrap();
    let block = workload::TimedBlock {
        workload,
        seconds: 0.2,
        warm_up_seconds: 0.05,
        seed: 1,
        attempt: 0,
        monitor: None,
    };
    let slices = clients.interleave(&mut servers, &block).unwrap();
    assert!(slices.rounds >= 2);
    let points: Vec<Point> = slices.time.iter().map(|row| row.point).collect();
    assert_eq!(points, [Point::BASE, Point::Control]);
    for row in &slices.time {
        assert_eq!(row.values.len() as u64, slices.rounds);
        assert_eq!(row.transactions_per_slice, 20);
        assert!(row.values.iter().all(|&time| time > 0.0));
    }
    let running = &servers[0].1;
    let mut client = clients.serve(running, workload, 1).unwrap();
    assert_eq!(client.run(running, 50).unwrap(), 50);
}

#[test]
fn the_example_of_a_client_names_the_line_of_a_fault() {
    let text = "description = ''\nkind = 'line'\n[line]\nrequest = 'x'\nslice = 0\n";
    let workload = Workload::parse("w", text).unwrap();
    let error = (workload::LINE.client)(&workload).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("bench-config/workloads/w.toml:5: "),
        "{message}"
    );
}

#[test]
fn the_example_of_a_forge_keeps_one_comment() {
    let folder = tempfile::tempdir().unwrap();
    let forge = forge::Folder {
        repository: "acme/series".parse().unwrap(),
        path: folder.path().into(),
    };
    let target = forge::Target {
        number: Some(7),
        head: Some("1".repeat(40)),
        ..forge::Target::default()
    };
    let found = forge.find(&target).unwrap();
    let posting = PostOptions {
        id: "quick".into(),
        check: false,
        label: None,
        fail_on_regression: false,
        fail_on_inconclusive: false,
    };
    let error = Error::build_failed("patch 3 does not compile");
    let failures = [Failure::new(&error, None)];
    let notice = Notice {
        failures: &failures,
        ..Notice::default()
    };
    let draft = Draft {
        subject: &notice.subject,
        write: &|subject, limit| Ok(comment(&notice.about(subject), limit)),
    };
    let post = || perfquilt_forge::post(&forge, &posting, &found, &draft).unwrap();
    let first = post();
    assert_eq!((first.number, first.comment.action), (7, "created"));
    assert_eq!(post().comment.action, "unchanged");
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(folder.path().join("7-1.md")).unwrap();
    assert!(text.contains("patch 3 does not compile"), "{text}");
    assert_eq!(forge.repository().to_string(), "acme/series");
}
