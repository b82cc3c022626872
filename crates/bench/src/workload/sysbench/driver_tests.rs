//! Tests of the driver in a real sysbench, with scripts that need no server.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::result::{read_failure, read_slices};
use super::serve::read_restarted;
use super::{BlockSlices, DRIVER};
use perfquilt_model::point::Point;
use perfquilt_system::process::{Command, Output};

const POINTS: [Point; 3] = [Point::Step(0), Point::Step(1), Point::Control];

/// Lua code that numbers the copies of a script in `copy`.
const NUMBERED: &str = "package.loaded.copies = (package.loaded.copies or 0) + 1\n\
                        local copy = package.loaded.copies\n\
                        local out = os.getenv('PERFQUILT_OUT')\n";

struct Run {
    folder: tempfile::TempDir,
    output: Output,
}

impl Run {
    fn new(script: &str, threads: u32, settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let driver = folder.path().join("driver.lua");
        std::fs::write(&driver, DRIVER).unwrap();
        let path = folder.path().join("script.lua");
        std::fs::write(&path, format!("{NUMBERED}{script}")).unwrap();
        let pid = std::process::id();
        let mut command = Command::new("sysbench")
            .arg(&driver)
            .arg(format!("--threads={threads}"))
            .args(["--time=0", "--events=0", "run"])
            .env("PERFQUILT_SCRIPT", &path)
            .env("PERFQUILT_SOCKETS", "a,b,c")
            .env("PERFQUILT_PIDS", format!("{pid},{pid},{pid}"))
            .env("PERFQUILT_OUT", folder.path())
            .env("PERFQUILT_SEED", "42")
            .env("PERFQUILT_SECONDS", "0.05")
            .env("PERFQUILT_WARMUP_SECONDS", "0.01");
        for (name, value) in settings {
            command = command.env(format!("PERFQUILT_{name}"), value);
        }
        let output = command.run_within(Duration::from_secs(60)).unwrap();
        Run { folder, output }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn measured(&self) -> BlockSlices {
        assert!(
            self.output.success(),
            "{}{}{:?}",
            self.output.stdout_text(),
            self.output.stderr_text(),
            read_failure(&self.path("error"))
        );
        read_slices(&self.path("slices"), &POINTS).unwrap()
    }
}

/// Records what each transaction drew.
const DRAWING: &str = r"
local draws = {}
function event()
   draws[#draws + 1] = table.concat({
      sysbench.rand.uniform(1, 1000000), sysbench.rand.default(1, 1000000),
      sysbench.rand.string('@@@###'), math.random(1, 1000000), sysbench.rand.unique(),
   }, ' ')
end
function thread_done(tid)
   local file = io.open(out .. '/draws.' .. copy .. '.' .. tid, 'w')
   file:write(table.concat(draws, '\n'), '\n')
   file:close()
end
";

#[test]
fn all_servers_get_the_same_transactions() {
    let run = Run::new(DRAWING, 1, &[]);
    let measured = run.measured();
    assert!(measured.rounds > 0);
    let first = run.text("draws.1.0");
    assert_eq!(first, run.text("draws.2.0"));
    assert_eq!(first, run.text("draws.3.0"));
    let lines: Vec<&str> = first.lines().collect();
    let different: BTreeSet<&&str> = lines.iter().collect();
    assert!(lines.len() > 20);
    assert_eq!(different.len(), lines.len());
}

#[test]
fn threads_get_different_transactions() {
    let run = Run::new(DRAWING, 3, &[]);
    assert!(run.measured().rounds > 0);
    for thread in 0..3 {
        let text = run.text(&format!("draws.1.{thread}"));
        assert_eq!(text, run.text(&format!("draws.2.{thread}")));
    }
    let (a, b) = (run.text("draws.1.0"), run.text("draws.1.1"));
    let a: BTreeSet<&str> = a.lines().collect();
    assert!(b.lines().all(|line| !a.contains(line)));
}

#[test]
fn runs_with_the_same_seed_are_equal() {
    let transactions = |seed| {
        let run = Run::new(DRAWING, 1, &[("SEED", seed)]);
        run.text("draws.1.0").lines().next().unwrap().to_owned()
    };
    assert_eq!(transactions("7"), transactions("7"));
    assert_ne!(transactions("7"), transactions("8"));
}

#[test]
fn servers_alternate_in_random_order() {
    let script = r"
package.loaded.turns = package.loaded.turns or {}
local turns = package.loaded.turns
function event()
   turns[#turns + 1] = copy
end
function thread_done()
   if copy == 1 then
      local file = io.open(out .. '/turns', 'w')
      file:write(table.concat(turns))
      file:close()
   end
end
";
    // One transaction per slice.
    let run = Run::new(
        script,
        1,
        &[
            ("SLICE_TRANSACTIONS", "1"),
            ("TURN_MS", "0"),
            ("LEAD_MS", "0"),
        ],
    );
    assert!(run.measured().rounds > 50);
    let turns = run.text("turns");
    let rounds: Vec<&str> = (0..turns.len() / 3)
        .map(|i| &turns[3 * i..3 * i + 3])
        .collect();
    for order in ["123", "132", "213", "231", "312", "321"] {
        let count = rounds.iter().filter(|round| **round == order).count();
        // The expectation is a sixth.
        assert!(
            10 * count > rounds.len(),
            "{order}: {count} of {}",
            rounds.len()
        );
    }
    assert!(rounds.iter().all(|round| {
        let servers: BTreeSet<char> = round.chars().collect();
        servers.len() == 3
    }));
}

#[test]
fn slices_measure_time_and_processor_time() {
    let script = "local ffi = require('ffi')\n\
                  function event() ffi.C.usleep(300 + 300 * copy) end";
    let measured = Run::new(script, 1, &[("SECONDS", "0.3")]).measured();
    let median = |index: usize| {
        let mut values = measured.time[index].values.clone();
        values.sort_by(f32::total_cmp);
        values[values.len() / 2] / measured.time[index].transactions_per_slice as f32
    };
    // A sleep takes at least the requested time, and longer on a busy machine.
    assert!(median(0) >= 600_000.0 && median(1) >= 900_000.0 && median(2) >= 1_200_000.0);
    assert!(median(0) < median(2));
    assert_eq!(measured.cpu.len(), 3);
    assert_eq!(measured.cpu[2].values.len(), measured.time[0].values.len());
}

#[test]
fn rounds_with_a_restarted_transaction_are_left_out() {
    let script = r"
local again
function event()
   if not again and sysbench.rand.uniform(1, 40) == 1 then
      again = true
      error({ errcode = sysbench.error.RESTART_EVENT })
   end
   again = false
end
function sysbench.hooks.before_restart_event()
   hooked = true
end
function thread_done()
   assert(io.open(out .. '/hooked.' .. copy .. (hooked and '.yes' or '.no'), 'w')):close()
end
";
    for threads in [1, 2] {
        let run = Run::new(
            script,
            threads,
            &[("SLICE_TRANSACTIONS", "1"), ("TURN_MS", "0")],
        );
        let measured = run.measured();
        assert!(measured.rounds > 0 && measured.discarded_rounds > 0);
        assert!(run.path("hooked.1.yes").exists());
    }
}

#[test]
fn a_block_continues_until_a_round_counts() {
    // Five warm-up rounds of one transaction per server; the sixth takes the whole time and is restarted.
    let script = r"
local ffi = require('ffi')
local number = 0
function event()
   number = number + 1
   if copy == 1 and number == 6 then
      ffi.C.usleep(600000)
      error({ errcode = sysbench.error.RESTART_EVENT })
   end
end
";
    let settings = [
        ("SLICE_TRANSACTIONS", "1"),
        ("TURN_MS", "0"),
        ("WARMUP_SECONDS", "0"),
        ("SECONDS", "0.5"),
    ];
    let measured = Run::new(script, 1, &settings).measured();
    assert_eq!((measured.rounds, measured.discarded_rounds), (1, 1));
}

#[test]
fn a_block_of_only_discarded_rounds_ends() {
    let script = r"
local again = false
function event()
   again = not again
   if again then
      error({ errcode = sysbench.error.RESTART_EVENT })
   end
end
";
    let run = Run::new(script, 1, &[]);
    assert!(run.output.success());
    let error = read_slices(&run.path("slices"), &POINTS).unwrap_err();
    assert!(error.message().starts_with("no usable round"), "{error}");
}

#[test]
fn answers_show_whether_transactions_were_restarted() {
    // Both requests and the end exist before the driver looks for them.
    let script = r"
local function put(name, text)
   local file = io.open(out .. '/' .. name, 'w')
   file:write(text)
   file:close()
end
put('request.1', '3')
put('request.2', '2')
put('end', '')
local number = 0
function event()
   number = number + 1
   if number == 5 then
      error({ errcode = sysbench.error.RESTART_EVENT })
   end
end
";
    let run = Run::new(script, 1, &[("MODE", "serve")]);
    assert!(run.output.success(), "{}", run.output.stdout_text());
    assert!(!read_restarted(&run.path("done.1")).unwrap());
    assert!(read_restarted(&run.path("done.2")).unwrap());
}

#[test]
fn a_failing_transaction_names_its_server_and_ends_all_threads() {
    let script = "function event() if copy == 2 then error('no such table') end end";
    for threads in [1, 3] {
        let run = Run::new(script, threads, &[]);
        assert_eq!(run.output.code, Some(3));
        let (server, lines) = read_failure(&run.path("error")).unwrap();
        assert_eq!(server, 2);
        assert!(lines[0].contains("no such table"), "{lines:?}");
        assert!(!run.path("slices").exists());
    }
}

#[test]
fn scripts_are_separate_and_share_the_source_of_modules() {
    let module = "counter = (counter or 0) + 1\nreturn { get = function() return counter end }";
    let script = format!(
        "local file = io.open(out .. '/module.lua', 'w')\nfile:write([==[{module}]==])\nfile:close()\n\
         local module = require('module')\nassert(require('module') == module)\n\
         assert(module.get() == 1 and counter == 1)\nfunction event() end"
    );
    Run::new(&script, 1, &[]).measured();
}

#[test]
fn scripts_that_cannot_run_are_errors() {
    for (script, words) in [
        ("x = 1", "no event function"),
        ("function event( end", "expected near"),
    ] {
        let run = Run::new(script, 1, &[]);
        assert!(!run.output.success());
        let said = run.output.stdout_text() + &run.output.stderr_text();
        assert!(said.contains(words), "{said}");
    }
}
