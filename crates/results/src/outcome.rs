//! The outcome of a run, in a folder that another machine can report from: `outcome.json` gives the reasons
//! for missing figures; `observations.jsonl.gz` has the raw observations, from which the figures are computed
//! again (docs/json.md). Neither file is trusted, because code of untrusted patches ran on the machine that
//! wrote them.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::analyse;
use perfquilt_config::Preset;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::Attribution;
use perfquilt_judge::bisect::BisectSession;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::observation::Meter;
use perfquilt_store::{ExperimentId, Store};
use perfquilt_system::caches::remove_file;
use perfquilt_system::digest;
use perfquilt_system::files::{open_untrusted, read_untrusted, write_file};
use perfquilt_system::git::Git;

/// The file with the failures.
pub const OUTCOME_FILE: &str = "outcome.json";
/// The file with the raw observations, if there are any.
const OBSERVATIONS_FILE: &str = "observations.jsonl.gz";

/// The file with the nonce of a run that has not begun.
const NONCE_FILE: &str = "nonce";
/// The file with a bisection's session, if there is one.
const BISECTION_FILE: &str = "bisection.json";
/// The largest session file, in bytes.
const LARGEST_SESSION: u64 = 16 << 20;

/// The largest number of failures that are kept.
const MOST_FAILURES: usize = 100;
/// The longest text of a time, in bytes.
const LONGEST_TIME: usize = 64;
/// The largest outcome file, in bytes.
const LARGEST: u64 = 4 << 20;

/// The subject of a run, and its start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStart {
    /// The measured commit; empty if unknown.
    pub head: String,
    /// When the run began (RFC 3339).
    pub began: String,
    /// Whether nobody has approved the code that ran.
    pub unapproved: bool,
    /// Random digits that only the program knows that was started for this run, and its outcome has; empty if nobody gave any.
    pub nonce: String,
    /// The workloads that were asked for.
    pub workloads: Vec<String>,
    /// The most blocks of meters that are timed, and of those that count.
    pub blocks: [u32; 2],
}

impl RunStart {
    /// Returns the start of a run of the commit `head` that begins now, and whose outcome is requested in `folder`. Takes the
    /// nonce away from there, before any code of a job can run.
    pub fn now(head: String, folder: Option<&Path>) -> Result<Self> {
        let mut start = RunStart {
            head,
            began: jiff::Timestamp::now().to_string(),
            ..RunStart::default()
        };
        if let Some(given) = folder.map(|folder| folder.join(NONCE_FILE)) {
            let nonce = read_untrusted(&given, 64)?.unwrap_or_default();
            start.nonce = String::from_utf8_lossy(&nonce).into_owned();
            remove_file(&given)?;
        }
        Ok(start)
    }

    /// Asks for a run with `preset`, whose outcome is to be written to `folder`; leaves the nonce there.
    pub fn asking(mut self, preset: &Preset, folder: &Path) -> Result<Self> {
        let mut random = [0; 16];
        let source = Path::new("/dev/urandom");
        File::open(source)
            .and_then(|mut file| file.read_exact(&mut random))
            .map_err(|e| Error::io("read", source, &e))?;
        self.nonce = format!("{:032x}", u128::from_ne_bytes(random));
        self.workloads.clone_from(&preset.workloads);
        let timed = preset.budget.map_or(preset.blocks, |_| u32::MAX);
        self.blocks = [timed, preset.count_blocks];
        write_file(&folder.join(NONCE_FILE), self.nonce.as_bytes())?;
        Ok(self)
    }

    /// Refuses an outcome that is not of this run, or has something else than what was asked for.
    fn check(&self, outcome: &RunOutcome, attribution: Option<&Attribution>) -> Result<()> {
        let refused = |why| {
            Err(Error::outcome(format!(
                "the outcome is not of this run: {why}"
            )))
        };
        if outcome.nonce != self.nonce {
            return refused("another program wrote it".to_owned());
        }
        // An experiment that the requesting program already had may have any number of blocks.
        let Some(of) = attribution.filter(|of| of.started >= self.began) else {
            return Ok(());
        };
        // A long series is divided into windows, each with so many blocks.
        let most = u32::try_from(of.patches.len()).unwrap_or(1).max(1);
        let other = of.progress.iter().find(|row| {
            let asked = self.blocks[usize::from(!row.meter.is_timed())].saturating_mul(most);
            !self.workloads.contains(&row.workload)
                || row.done.max(row.planned.unwrap_or(0)) > asked
        });
        other.map_or(Ok(()), |row| {
            let (done, workload) = (row.done, row.workload.escape_debug());
            refused(format!(
                "nobody asked for {done} blocks of `{workload}` ({})",
                row.meter
            ))
        })
    }
}

/// The failures of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Version of this document: 1.
    pub schema: u32,
    /// The commit that was measured; empty if unknown.
    #[serde(default)]
    pub head: String,
    /// When the last run began that wrote it (RFC 3339); empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub began: String,
    /// Whether the figures are those of code that nobody has approved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unapproved: bool,
    /// See [`RunStart::nonce`]; only in an outcome that the requesting program has not taken yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nonce: String,
    /// The failures, in order of occurrence.
    pub failures: Vec<Failure>,
    /// The failures of a bisection of the same commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bisection: Vec<Failure>,
}

impl RunOutcome {
    /// Creates an outcome with these failures of the commit `head`.
    pub fn new(head: &str, failures: Vec<Failure>) -> Self {
        RunOutcome {
            schema: 1,
            head: head.to_owned(),
            failures,
            ..RunOutcome::default()
        }
    }

    /// Returns when the run of this outcome began: its last one, which may have continued the experiment of `attribution`,
    /// else that experiment; `None` if it is unknown.
    pub fn began(&self, attribution: Option<&Attribution>) -> Option<String> {
        let experiment = attribution.map_or("", |attribution| &attribution.started);
        let mut known = [self.began.as_str(), experiment].into_iter();
        known.find(|began| !began.is_empty()).map(str::to_owned)
    }

    /// Reads an outcome from an untrusted file.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |why: String| {
            Error::outcome(format!(
                "not an outcome of `perfquilt run --outcome`: {why}"
            ))
            .at(path, None)
        };
        let missing = || {
            Error::outcome(format!("there is no {}", path.display()))
                .hint("`perfquilt run --outcome FOLDER` writes it")
        };
        let text = read_untrusted(path, LARGEST)?.ok_or_else(missing)?;
        digest::check(&text).map_err(|error| wrong(error.to_string()))?;
        let mut outcome: RunOutcome =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if outcome.schema != 1 {
            return Err(wrong(format!("its schema is {}, not 1", outcome.schema)));
        }
        let commit = |text: &str| text.len() <= 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if !commit(&outcome.head) {
            return Err(wrong("`head` is not a commit".to_owned()));
        }
        if outcome.began.len() > LONGEST_TIME {
            return Err(wrong("`began` is not a time".to_owned()));
        }
        let cut = |mut failures: Vec<Failure>| -> Vec<Failure> {
            failures.truncate(MOST_FAILURES);
            failures.into_iter().map(Failure::cut).collect()
        };
        outcome.failures = cut(outcome.failures);
        outcome.bisection = cut(outcome.bisection);
        Ok(outcome)
    }

    /// Writes the outcome to the folder `dir` atomically.
    fn write(&self, dir: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(Error::json)?;
        write_file(&dir.join(OUTCOME_FILE), &digest::sealed(&text))
    }
}

/// The largest size of untrusted observations, unpacked, in bytes.
pub const MAX_UNPACKED: u64 = 1 << 30;
/// The largest size of untrusted observations, packed, in bytes.
const MAX_PACKED: u64 = 256 << 20;

/// Refuses an outcome folder that is a link.
fn folder(dir: &Path) -> Result<()> {
    match std::fs::symlink_metadata(dir) {
        Ok(found) if found.is_symlink() => {
            Err(Error::outcome("it is a link, so it was not read").at(dir, None))
        }
        _ => Ok(()),
    }
}

/// Reads the outcome in the folder `dir`, and computes the attribution from its observations, if it has any. The
/// attribution has no commands: the file may be an untrusted author's.
pub fn read(
    dir: &Path,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<(RunOutcome, Option<Attribution>)> {
    folder(dir)?;
    let outcome = RunOutcome::read(&dir.join(OUTCOME_FILE))?;
    let observations = dir.join(OBSERVATIONS_FILE);
    let attribution = match open_untrusted(&observations)? {
        Some(file) => {
            let attribution = analyse::opened(file, &observations, MAX_UNPACKED, margin)?;
            // Readers would run them.
            Some(Attribution {
                command: None,
                bundle: None,
                ..attribution
            })
        }
        None => None,
    };
    Ok((outcome, attribution))
}

/// Reads the packed observations of the outcome in the folder `dir`, if it has any.
fn packed(dir: &Path) -> Result<Option<Vec<u8>>> {
    folder(dir)?;
    let path = dir.join(OBSERVATIONS_FILE);
    read_untrusted(&path, MAX_PACKED)
}

/// Reads the bisection's session in the folder `dir`, if there is one; its decisions follow from its
/// observations.
pub fn bisection(dir: &Path) -> Result<Option<BisectSession>> {
    folder(dir)?;
    let path = dir.join(BISECTION_FILE);
    let Some(bytes) = read_untrusted(&path, LARGEST_SESSION)? else {
        return Ok(None);
    };
    digest::check(&bytes).map_err(|error| error.at(&path, None))?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Error::outcome("it is not UTF-8").at(&path, None))?;
    BisectSession::parse(text)
        .map(Some)
        .map_err(|error| error.at(&path, None))
}

/// The part of an outcome that a command writes.
#[derive(Debug, Clone, Copy)]
pub enum OutcomePart<'a> {
    /// A run with its packed observations, if there are any.
    Run(Option<&'a [u8]>),
    /// A bisection with its session, if there is one.
    Bisection(Option<&'a BisectSession>),
}

/// Writes the part `made` of the run `start` and its failures to the folder `dir`. A bisection keeps an
/// existing run of the same commit, and a run an existing bisection; if either commit is unknown, nothing is kept.
pub fn update(
    dir: &Path,
    start: &RunStart,
    failures: Vec<Failure>,
    made: OutcomePart<'_>,
) -> Result<()> {
    let head = start.head.as_str();
    let before = RunOutcome::read(&dir.join(OUTCOME_FILE)).ok();
    let same = before.filter(|before| !head.is_empty() && before.head == head);
    let mut outcome = match same {
        Some(before) => before,
        None => {
            write_observations(dir, None)?;
            write_bisection(dir, None)?;
            // If the program is killed between two files, no figures remain under another commit.
            let nothing = RunOutcome::new(head, Vec::new());
            nothing.write(dir)?;
            nothing
        }
    };
    outcome.began.clone_from(&start.began);
    outcome.unapproved = start.unapproved;
    outcome.nonce.clone_from(&start.nonce);
    match made {
        OutcomePart::Run(observations) => {
            write_observations(dir, observations)?;
            outcome.failures = failures;
        }
        OutcomePart::Bisection(session) => {
            write_bisection(dir, session)?;
            outcome.bisection = failures;
        }
    }
    outcome.write(dir)
}

/// Copies the outcome of a run or, if `bisected`, of a bisection that is the run `start` from the folder `from`
/// to the folder `to`, as [`update`] does. The files are untrusted: invalid ones are not copied, nor those of another
/// run, nor what nobody asked for.
pub fn copy_untrusted(
    from: &Path,
    to: &Path,
    start: &RunStart,
    bisected: bool,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<()> {
    let (outcome, attribution) = read(from, margin)?;
    start.check(&outcome, attribution.as_ref())?;
    let start = &RunStart {
        nonce: String::new(),
        ..start.clone()
    };
    if !bisected {
        let observations = packed(from)?;
        return update(
            to,
            start,
            outcome.failures,
            OutcomePart::Run(observations.as_deref()),
        );
    }
    let session = bisection(from)?;
    if let Some(session) = &session {
        session.replay().outcome();
    }
    let failures = [outcome.failures, outcome.bisection].concat();
    update(
        to,
        start,
        failures,
        OutcomePart::Bisection(session.as_ref()),
    )
}

/// Writes a bisection to the folder `dir`, or removes the existing one.
fn write_bisection(dir: &Path, session: Option<&BisectSession>) -> Result<()> {
    let text = session.map(serde_json::to_vec).transpose();
    let text = text.map_err(Error::json)?.map(|text| digest::sealed(&text));
    write_or_remove(&dir.join(BISECTION_FILE), text.as_deref())
}

/// Writes packed observations to the folder `dir`, or removes the existing ones.
fn write_observations(dir: &Path, packed: Option<&[u8]>) -> Result<()> {
    write_or_remove(&dir.join(OBSERVATIONS_FILE), packed)
}

fn write_or_remove(path: &Path, bytes: Option<&[u8]>) -> Result<()> {
    match bytes {
        Some(bytes) => write_file(path, bytes),
        None => remove_file(path),
    }
}

/// Writes the outcome of the run `start` to the folder `dir`, as [`update`] does: the failures, and
/// the observations of the experiment, if there is one.
pub fn write(
    dir: &Path,
    start: &RunStart,
    failures: Vec<Failure>,
    experiment: Option<(&Store, ExperimentId)>,
) -> Result<()> {
    let packed = match experiment {
        Some((store, id)) => Some(analyse::stored(store, id)?.compressed()?),
        None => None,
    };
    update(dir, start, failures, OutcomePart::Run(packed.as_deref()))
}

/// Returns the commit of the workspace; empty if unknown. Call it before the work, because no process can be
/// started after a signal has asked this program to stop.
pub fn workspace_commit(ws: &Workspace) -> String {
    Git::new(ws.root()).head().unwrap_or_default()
}

/// Returns whether the files of the workspace are in its commit, but for those that git does not track and the lock file, which
/// fetching writes.
pub fn is_committed(ws: &Workspace) -> Result<bool> {
    let git = Git::new(ws.root());
    let lock = format!(":(exclude){}", ws.written(&ws.lock_file()).display());
    let status = [
        "status",
        "--porcelain=v1",
        "--untracked-files=no",
        "--",
        ".",
        &lock,
    ];
    Ok(git.ok(&status)?.is_empty() && !git.ok(&["ls-files", "--", "."])?.is_empty())
}

/// Returns the commit of the workspace, if all of its files are in it.
pub fn whole_commit(ws: &Workspace) -> Option<String> {
    let commit = workspace_commit(ws);
    let is_whole = !commit.is_empty() && is_committed(ws).unwrap_or(false);
    is_whole.then_some(commit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;
    use perfquilt_model::failure::LONGEST;
    use perfquilt_model::point::Point;

    fn start(head: &str) -> RunStart {
        RunStart {
            head: head.to_owned(),
            began: "2026-01-02T03:04:05Z".to_owned(),
            ..RunStart::default()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let error = Error::build_failed("patch 3 does not compile: `x` was not declared")
            .at("sql/a.cc", 12)
            .details(["a.cc:12: error"])
            .hint("mend it");
        let outcome = RunOutcome::new("0123abc", vec![Failure::new(&error, Some(Point::Step(3)))]);
        outcome.write(dir.path()).unwrap();
        assert_eq!(
            RunOutcome::read(&dir.path().join(OUTCOME_FILE)).unwrap(),
            outcome
        );
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let mut failure = Failure::new(&Error::build_failed("x".repeat(5000)), None);
        failure.details = vec!["y".repeat(5000); 500];
        failure.message = "z".repeat(5000);
        RunOutcome::new("", vec![failure; 2])
            .write(dir.path())
            .unwrap();
        let path = dir.path().join(OUTCOME_FILE);
        assert!(
            RunOutcome::read(&path)
                .unwrap_err()
                .to_string()
                .contains("larger")
        );
        let mut failure = Failure::new(&Error::build_failed("x"), None);
        failure.message = "z".repeat(5000);
        RunOutcome::new("", vec![failure; 200])
            .write(dir.path())
            .unwrap();
        let outcome = RunOutcome::read(&path).unwrap();
        assert_eq!(outcome.failures.len(), MOST_FAILURES);
        assert_eq!(outcome.failures[0].message.chars().count(), LONGEST + 1);
    }

    #[test]
    fn links_and_pipes_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        RunOutcome::new("", Vec::new()).write(&from).unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        let observations = from.join(OBSERVATIONS_FILE);
        let refused = || {
            let taken = copy_untrusted(&from, &to, &start("0123abc"), false, &|_| 0.005);
            for result in [read(&from, &|_| 0.005).map(|_| ()), taken] {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), Kind::Usage, "{error}");
                assert!(!to.join(OBSERVATIONS_FILE).exists());
            }
        };
        std::os::unix::fs::symlink(&secret, &observations).unwrap();
        refused();
        std::fs::remove_file(&observations).unwrap();
        let (mode, kind) = (rustix::fs::Mode::RUSR, rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(rustix::fs::CWD, &observations, kind, mode, 0).unwrap();
        refused();
        std::fs::remove_file(&observations).unwrap();
        read(&from, &|_| 0.005).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&from, &link).unwrap();
        assert_eq!(read(&link, &|_| 0.005).unwrap_err().kind(), Kind::Usage);
        std::fs::remove_file(from.join(OUTCOME_FILE)).unwrap();
        std::os::unix::fs::symlink(&secret, from.join(OUTCOME_FILE)).unwrap();
        assert_eq!(read(&from, &|_| 0.005).unwrap_err().kind(), Kind::Usage);
    }

    /// Writes an outcome of one block with a time of every point of `patches` patches on every one of `workloads`, and
    /// returns what reading it says.
    fn said_of(patches: usize, workloads: usize, planned: usize) -> String {
        let dir = tempfile::tempdir().unwrap();
        let series: Vec<String> = (1..=patches).map(|k| format!("{k}.patch")).collect();
        let plan =
            |k| serde_json::json!({"workload": format!("w{k}"), "meter": "time", "blocks": 1});
        let header = serde_json::json!({
            "schema": 1, "experiment": "x", "series": series, "release": "r", "machine": {}, "harness": "h",
            "planned": (0..planned).map(plan).collect::<Vec<_>>(),
        });
        let mut text = format!("{header}\n");
        for workload in 0..workloads {
            for point in 0..=patches.min(1) {
                let line = serde_json::json!({
                    "schema": 1, "experiment": "x", "block": 0, "order": point, "point": point.to_string(),
                    "layout": 0, "workload": format!("w{workload}"), "meter": "time", "unit": "ns/txn",
                    "value": 100 + point, "n": 1,
                });
                text += &format!("{line}\n");
            }
        }
        let path = dir.path().join(OBSERVATIONS_FILE);
        std::fs::write(&path, text).unwrap();
        RunOutcome::new("", Vec::new()).write(dir.path()).unwrap();
        match read(dir.path(), &|_| 0.005) {
            Ok((_, attribution)) => format!("{} workloads", attribution.unwrap().workloads.len()),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Usage);
                error.to_string()
            }
        }
    }

    #[test]
    fn what_would_take_too_long_to_judge_is_refused() {
        use perfquilt_judge::attribution::{MOST_EFFECTS, MOST_WORKLOADS};
        use perfquilt_model::observation::MOST_PATCHES;
        let refused = |said: String, why: String| assert!(said.ends_with(&why), "{said}");
        let more = MOST_WORKLOADS + 1;
        assert_eq!(said_of(1, MOST_WORKLOADS, 0), "2000 workloads");
        let workloads =
            format!("{more} workloads of one meter; at most {MOST_WORKLOADS} are judged");
        refused(said_of(1, more, 0), workloads.clone());
        refused(said_of(1, 0, more), workloads);
        let patches = format!(
            "{} patches; at most {MOST_PATCHES} are supported",
            MOST_PATCHES + 1
        );
        refused(said_of(MOST_PATCHES + 1, 1, 0), patches);
        // One row a patch over all workloads.
        let workloads = MOST_EFFECTS / MOST_PATCHES;
        let effects = (workloads + 1) * MOST_PATCHES;
        refused(
            said_of(MOST_PATCHES, workloads, 0),
            format!(
                "{effects} effects (patches times workloads); at most {MOST_EFFECTS} are judged"
            ),
        );
    }

    #[test]
    fn what_was_not_asked_for_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let preset: Preset = serde_json::from_value(serde_json::json!({
            "recipe": "r", "workloads": ["w0"], "meters": ["time"], "blocks": 2, "block_seconds": 1.0,
        }))
        .unwrap();
        let taken = |blocks: u32, workload: &str, nonce: Option<&str>| {
            let asked = start("0123abc").asking(&preset, &from).unwrap();
            let mut begun = RunStart::now("0123abc".to_owned(), Some(&from)).unwrap();
            assert_eq!(begun.nonce, asked.nonce);
            assert!(!from.join(NONCE_FILE).exists(), "code of the job reads it");
            if let Some(other) = nonce {
                begun.nonce = other.to_owned();
            }
            let header = serde_json::json!({
                "schema": 1, "experiment": "x", "series": ["1.patch"], "release": "r", "machine": {}, "harness": "h",
                "started": "2999-01-01T00:00:00Z",
                "planned": [{"workload": workload, "meter": "time", "blocks": blocks}],
            });
            let mut text = format!("{header}\n");
            for (block, point) in (0..blocks).flat_map(|block| [(block, 0), (block, 1)]) {
                let line = serde_json::json!({
                    "schema": 1, "experiment": "x", "block": block, "order": point, "point": point.to_string(),
                    "layout": 0, "workload": workload, "meter": "time", "unit": "ns/txn", "value": 100 + point, "n": 1,
                });
                text += &format!("{line}\n");
            }
            let made = OutcomePart::Run(Some(text.as_bytes()));
            update(&from, &begun, Vec::new(), made).unwrap();
            copy_untrusted(&from, &to, &asked, false, &|_| 0.005).map_err(|error| error.to_string())
        };
        taken(2, "w0", None).unwrap();
        assert!(
            RunOutcome::read(&to.join(OUTCOME_FILE))
                .unwrap()
                .nonce
                .is_empty()
        );
        for (blocks, workload, nonce, words) in [
            (12, "w0", None, "12 blocks of `w0`"),
            (2, "w1", None, "nobody asked for 2 blocks of `w1`"),
            (2, "w0", Some(""), "another program"),
            (
                2,
                "w0",
                Some("00000000000000000000000000000000"),
                "another program",
            ),
        ] {
            let error = taken(blocks, workload, nonce).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    /// Figures and bisection of one commit are kept together, whichever is written last.
    #[test]
    fn what_is_there_of_the_same_commit_stays() {
        let dir = tempfile::tempdir().unwrap();
        let failure = |message: &str| vec![Failure::new(&Error::build_failed(message), None)];
        let kept = || {
            let outcome = RunOutcome::read(&dir.path().join(OUTCOME_FILE)).unwrap();
            assert_eq!(outcome.began, start("").began);
            let messages = |of: &[Failure]| -> Vec<String> {
                of.iter().map(|failure| failure.message.clone()).collect()
            };
            (
                messages(&outcome.failures).concat(),
                messages(&outcome.bisection).concat(),
                dir.path().join(OBSERVATIONS_FILE).exists(),
            )
        };
        let write_part = |head: &str, message: &str, made| {
            update(dir.path(), &start(head), failure(message), made).unwrap()
        };
        let (measured, bisected) = (
            OutcomePart::Run(Some(b"packed")),
            OutcomePart::Bisection(None),
        );
        let told =
            |run: &str, bisection: &str, figures| (run.to_owned(), bisection.to_owned(), figures);
        write_part("0123abc", "run", measured);
        write_part("0123abc", "bisection", bisected);
        assert_eq!(kept(), told("run", "bisection", true));
        write_part("0123abc", "again", measured);
        assert_eq!(kept(), told("again", "bisection", true));
        write_part("4567def", "bisection", bisected);
        assert_eq!(kept(), told("", "bisection", false));
        write_part("", "run", measured);
        write_part("", "bisection", bisected);
        assert_eq!(kept(), told("", "bisection", false));
    }

    #[test]
    fn other_documents_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for text in [
            "",
            "{}",
            "[]",
            r#"{"schema":2,"failures":[]}"#,
            r#"{"schema":1,"head":"; rm","failures":[]}"#,
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(
                RunOutcome::read(&path).unwrap_err().kind(),
                Kind::Usage,
                "{text}"
            );
        }
        assert!(
            RunOutcome::read(&dir.path().join("y"))
                .unwrap_err()
                .hint_text()
                .is_some()
        );
    }
}
