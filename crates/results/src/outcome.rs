//! What a run came to, in a folder that another machine can report from: `outcome.json` says why there are
//! no figures, or not all; `observations.jsonl.gz` has the raw observations, of which the figures are made
//! again (docs/json.md). Neither has to be trusted: code of a stranger's patch ran where they were made.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::analyse;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::Attribution;
use perfquilt_judge::bisect;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::observation::Meter;
use perfquilt_store::{ExperimentId, Store, jsonl};
use perfquilt_system::files::write_file;
use perfquilt_system::git::Git;

/// The file that says what failed.
pub const OUTCOME_FILE: &str = "outcome.json";
/// The file with the raw observations, where there are any.
const OBSERVATIONS_FILE: &str = "observations.jsonl.gz";

/// The file with a bisection's session, where there is one.
const BISECTION_FILE: &str = "bisection.json";
/// Bytes of a session that are read.
const LARGEST_SESSION: u64 = 16 << 20;

/// Failures that are kept: nobody reads more.
const MOST_FAILURES: usize = 100;
/// Bytes of an outcome file that are read.
const LARGEST: u64 = 4 << 20;

/// What failed of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Version of this document: 1.
    pub schema: u32,
    /// The commit that was measured; empty when unknown.
    #[serde(default)]
    pub head: String,
    /// What failed, in the order it did.
    pub failures: Vec<Failure>,
    /// Why a bisection of the same commit came to nothing, where it did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bisection: Vec<Failure>,
}

impl Outcome {
    /// An outcome of these failures at the commit `head`.
    pub fn new(head: &str, failures: Vec<Failure>) -> Self {
        Outcome {
            schema: 1,
            head: head.to_owned(),
            failures,
            bisection: Vec::new(),
        }
    }

    /// Reads an outcome from somebody else's file.
    ///
    /// # Errors
    /// [`Kind::Usage`] when there is none, it is too large, or it is something else.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |why: String| {
            Error::usage(format!(
                "not an outcome of `perfquilt run --outcome`: {why}"
            ))
            .at(path, None)
        };
        let missing = || {
            Error::usage(format!("there is no {}", path.display()))
                .hint("`perfquilt run --outcome FOLDER` writes it")
        };
        let file = plain(path)?.ok_or_else(missing)?;
        let text = whole(file, path, LARGEST)?;
        let mut outcome: Outcome =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if outcome.schema != 1 {
            return Err(wrong(format!("its schema is {}, not 1", outcome.schema)));
        }
        let commit = |text: &str| text.len() <= 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if !commit(&outcome.head) {
            return Err(wrong("`head` is not a commit".to_owned()));
        }
        let cut = |mut failures: Vec<Failure>| -> Vec<Failure> {
            failures.truncate(MOST_FAILURES);
            failures.into_iter().map(Failure::cut).collect()
        };
        outcome.failures = cut(outcome.failures);
        outcome.bisection = cut(outcome.bisection);
        Ok(outcome)
    }

    /// Writes the outcome to the folder `dir`, as a whole or not at all.
    ///
    /// # Errors
    /// [`Kind::Internal`] when it cannot be written.
    fn write(&self, dir: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
        write_file(&dir.join(OUTCOME_FILE), &text)
    }
}

/// Bytes of somebody else's observations that are read, unpacked.
pub const MOST: u64 = 1 << 30;
/// The same, packed.
const MOST_PACKED: u64 = 256 << 20;

/// Opens a file that somebody else may have made: a plain file, for a link could lead to what they may not
/// read, and a pipe would never end. `None` when there is none.
fn plain(path: &Path) -> Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let refused =
        |why: &str| Error::usage(format!("{why}, and nothing of it is read")).at(path, None);
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(refused("it is a link")),
        Err(error) => return Err(Error::io("read", path, &error.into())),
    };
    let kind = file.metadata().map_err(|e| Error::io("read", path, &e))?;
    if kind.is_file() {
        Ok(Some(file))
    } else {
        Err(refused("it is no plain file"))
    }
}

/// The bytes of `file`, of which there may be `most`.
fn whole(file: File, path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Error::io("read", path, &e))?;
    if bytes.len() as u64 <= most {
        Ok(bytes)
    } else {
        Err(Error::usage(format!("it is larger than {most} bytes")).at(path, None))
    }
}

/// Refuses an outcome's folder that is a link.
fn folder(dir: &Path) -> Result<()> {
    match std::fs::symlink_metadata(dir) {
        Ok(found) if found.is_symlink() => {
            Err(Error::usage("it is a link, and nothing of it is read").at(dir, None))
        }
        _ => Ok(()),
    }
}

/// Reads the outcome in the folder `dir`, and makes the attribution of its observations, if it has any.
///
/// # Errors
/// [`Kind::Usage`], naming the file that is not as it should be.
pub fn read(dir: &Path, margin: &dyn Fn(Meter) -> f64) -> Result<(Outcome, Option<Attribution>)> {
    folder(dir)?;
    let outcome = Outcome::read(&dir.join(OUTCOME_FILE))?;
    let observations = dir.join(OBSERVATIONS_FILE);
    let attribution = match plain(&observations)? {
        Some(file) => Some(analyse::opened(file, &observations, MOST, margin)?),
        None => None,
    };
    Ok((outcome, attribution))
}

/// The packed observations of the outcome in the folder `dir`, if it has any.
fn packed(dir: &Path) -> Result<Option<Vec<u8>>> {
    folder(dir)?;
    let path = dir.join(OBSERVATIONS_FILE);
    match plain(&path)? {
        Some(file) => whole(file, &path, MOST_PACKED).map(Some),
        None => Ok(None),
    }
}

/// Reads the bisection in the folder `dir`, if there is one, and decides again from its observations.
///
/// # Errors
/// [`Kind::Usage`] when it is not as it should be.
pub fn bisection(dir: &Path) -> Result<Option<bisect::Session>> {
    folder(dir)?;
    let path = dir.join(BISECTION_FILE);
    let Some(file) = plain(&path)? else {
        return Ok(None);
    };
    let bytes = whole(file, &path, LARGEST_SESSION)?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| Error::usage("it is no text").at(&path, None))?;
    bisect::Session::parse(text)
        .map(Some)
        .map_err(|error| error.at(&path, None))
}

/// What an outcome is of.
#[derive(Debug, Clone, Copy)]
pub enum Made<'a> {
    /// A run, and its packed observations where there are any.
    Run(Option<&'a [u8]>),
    /// A bisection, and its session where there is one.
    Bisection(Option<&'a bisect::Session>),
}

/// Puts what was `made` of the commit `head`, and what failed of it, into the folder `dir`. Of the outcome that
/// is there, a bisection leaves what was measured of the same commit, and a run what was bisected; where either
/// commit is unknown (`head` is empty), nothing is left.
///
/// # Errors
/// [`Kind::Internal`] when it cannot be written.
pub fn put(dir: &Path, head: &str, failures: Vec<Failure>, made: Made<'_>) -> Result<()> {
    let before = Outcome::read(&dir.join(OUTCOME_FILE)).ok();
    let same = before.filter(|before| !head.is_empty() && before.head == head);
    let mut outcome = match same {
        Some(before) => before,
        None => {
            keep_observations(dir, None)?;
            keep_bisection(dir, None)?;
            // Whatever ends this between two files, no figures stand under another commit.
            let nothing = Outcome::new(head, Vec::new());
            nothing.write(dir)?;
            nothing
        }
    };
    match made {
        Made::Run(observations) => {
            keep_observations(dir, observations)?;
            outcome.failures = failures;
        }
        Made::Bisection(session) => {
            keep_bisection(dir, session)?;
            outcome.bisection = failures;
        }
    }
    outcome.write(dir)
}

/// Puts what a run or, if `bisected`, a bisection of the commit `head` left in the folder `from` into the
/// folder `to`, as [`put`] does. Code of strangers may have made it: what cannot be read again is not taken.
///
/// # Errors
/// As [`read`], [`bisection`] and [`put`].
pub fn take(
    from: &Path,
    to: &Path,
    head: &str,
    bisected: bool,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<()> {
    let (outcome, _) = read(from, margin)?;
    if !bisected {
        let observations = packed(from)?;
        return put(
            to,
            head,
            outcome.failures,
            Made::Run(observations.as_deref()),
        );
    }
    let session = bisection(from)?;
    if let Some(session) = &session {
        session.replay().outcome();
    }
    let failures = [outcome.failures, outcome.bisection].concat();
    put(to, head, failures, Made::Bisection(session.as_ref()))
}

/// Writes a bisection to the folder `dir`, or removes the one there.
fn keep_bisection(dir: &Path, session: Option<&bisect::Session>) -> Result<()> {
    let Some(session) = session else {
        return perfquilt_system::caches::remove_file(&dir.join(BISECTION_FILE));
    };
    let text = serde_json::to_vec(session)
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    write_file(&dir.join(BISECTION_FILE), &text)
}

/// Writes packed observations to the folder `dir`, or removes those there.
fn keep_observations(dir: &Path, packed: Option<&[u8]>) -> Result<()> {
    let path = dir.join(OBSERVATIONS_FILE);
    match packed {
        Some(bytes) => write_file(&path, bytes),
        None => perfquilt_system::caches::remove_file(&path),
    }
}

/// Writes the outcome of a run of the commit `head` to the folder `dir`, as [`put`] does: what failed, and the observations
/// of the experiment, if there is one.
///
/// # Errors
/// [`Kind::Internal`] when it cannot be written, or the store cannot be read.
pub fn write(
    dir: &Path,
    head: &str,
    failures: Vec<Failure>,
    experiment: Option<(&Store, ExperimentId)>,
) -> Result<()> {
    let packed = match experiment {
        Some((store, id)) => Some(jsonl::compressed(&analyse::stored(store, id)?)?),
        None => None,
    };
    put(dir, head, failures, Made::Run(packed.as_deref()))
}

/// The commit of the workspace; empty when unknown. To be asked before the work: nothing is started any more once
/// a signal asks this program to stop.
pub fn head(ws: &Workspace) -> String {
    Git::new(ws.root()).head().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;
    use perfquilt_model::failure::LONGEST;
    use perfquilt_model::point::Point;

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let error = Error::build("patch 3 does not compile: `x` was not declared")
            .at("sql/a.cc", 12)
            .details(["a.cc:12: error"])
            .hint("mend it");
        let outcome = Outcome::new("0123abc", vec![Failure::new(&error, Some(Point::Step(3)))]);
        outcome.write(dir.path()).unwrap();
        assert_eq!(
            Outcome::read(&dir.path().join(OUTCOME_FILE)).unwrap(),
            outcome
        );
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let mut failure = Failure::new(&Error::build("x".repeat(5000)), None);
        failure.details = vec!["y".repeat(5000); 500];
        failure.message = "z".repeat(5000);
        Outcome::new("", vec![failure; 2])
            .write(dir.path())
            .unwrap();
        let path = dir.path().join(OUTCOME_FILE);
        assert!(
            Outcome::read(&path)
                .unwrap_err()
                .to_string()
                .contains("larger")
        );
        let mut failure = Failure::new(&Error::build("x"), None);
        failure.message = "z".repeat(5000);
        Outcome::new("", vec![failure; 200])
            .write(dir.path())
            .unwrap();
        let outcome = Outcome::read(&path).unwrap();
        assert_eq!(outcome.failures.len(), MOST_FAILURES);
        assert_eq!(outcome.failures[0].message.chars().count(), LONGEST + 1);
    }

    #[test]
    fn links_and_pipes_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        Outcome::new("", Vec::new()).write(&from).unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        let observations = from.join(OBSERVATIONS_FILE);
        let refused = || {
            let taken = take(&from, &to, "0123abc", false, &|_| 0.005);
            for result in [read(&from, &|_| 0.005).map(|_| ()), taken] {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), Kind::Usage, "{error}");
                assert!(!to.join(OBSERVATIONS_FILE).exists());
            }
        };
        std::os::unix::fs::symlink(&secret, &observations).unwrap();
        refused();
        std::fs::remove_file(&observations).unwrap();
        let (mode, kind) = (Mode::RUSR, rustix::fs::FileType::Fifo);
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

    /// A commit's figures and its bisection stand beside each other, whichever is made last.
    #[test]
    fn what_is_there_of_the_same_commit_stays() {
        let dir = tempfile::tempdir().unwrap();
        let failure = |message: &str| vec![Failure::new(&Error::build(message), None)];
        let kept = || {
            let outcome = Outcome::read(&dir.path().join(OUTCOME_FILE)).unwrap();
            let messages = |of: &[Failure]| -> Vec<String> {
                of.iter().map(|failure| failure.message.clone()).collect()
            };
            (
                messages(&outcome.failures).concat(),
                messages(&outcome.bisection).concat(),
                dir.path().join(OBSERVATIONS_FILE).exists(),
            )
        };
        let put = |head: &str, message: &str, made| {
            put(dir.path(), head, failure(message), made).unwrap()
        };
        let (measured, bisected) = (Made::Run(Some(b"packed")), Made::Bisection(None));
        let told =
            |run: &str, bisection: &str, figures| (run.to_owned(), bisection.to_owned(), figures);
        put("0123abc", "run", measured);
        put("0123abc", "bisection", bisected);
        assert_eq!(kept(), told("run", "bisection", true));
        put("0123abc", "again", measured);
        assert_eq!(kept(), told("again", "bisection", true));
        put("4567def", "bisection", bisected);
        assert_eq!(kept(), told("", "bisection", false));
        put("", "run", measured);
        put("", "bisection", bisected);
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
                Outcome::read(&path).unwrap_err().kind(),
                Kind::Usage,
                "{text}"
            );
        }
        assert!(
            Outcome::read(&dir.path().join("y"))
                .unwrap_err()
                .hint_text()
                .is_some()
        );
    }
}
