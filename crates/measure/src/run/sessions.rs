//! Stores the sessions of bisections: one JSON file each, replaced atomically.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::{Action, BisectSession, Question};
use perfquilt_model::error::{Error, Result};
use perfquilt_store::Store;
use perfquilt_system::digest;
use perfquilt_system::files::{if_there, write_file};
use perfquilt_system::locks::{self, Lock};

/// A session in its file.
#[derive(Debug)]
pub struct StoredSession {
    path: PathBuf,
    /// Held while the session runs.
    _lock: Option<Lock>,
    /// Its name: the file's.
    pub name: String,
    /// The session.
    pub session: BisectSession,
}

/// The sessions of a workspace.
#[derive(Debug)]
pub struct Sessions {
    folder: PathBuf,
}

impl Sessions {
    /// Returns the sessions of `ws`.
    pub fn of(ws: &Workspace) -> Self {
        Sessions {
            folder: ws.state().join("bisect"),
        }
    }

    /// Opens the session that asks `question` in `context` (machine, harness, settings, recipe), or begins it;
    /// with `fresh`, an unfinished one that uses no stored measurement. A session with an unusable end is not
    /// reopened, since its cause may have been fixed. `store` has the observations.
    pub fn open(
        &self,
        question: &Question,
        context: &str,
        fresh: bool,
        store: &Store,
    ) -> Result<StoredSession> {
        let text = serde_json::to_string(question)
            .map_err(|error| Error::internal(format!("cannot write the question: {error}")))?;
        let digest = hex::encode(Sha256::digest(format!("{text}\n{context}")));
        for number in 1.. {
            let name = match number {
                1 => digest[..12].to_owned(),
                _ => format!("{}-{number}", &digest[..12]),
            };
            let path = self.path(&name);
            // Taken before the first look at the file: another process may be about to write it.
            let lock = self.lock(&name)?;
            if !path.is_file() {
                // The file was removed: a new session of this name would take the old observations for its own.
                if store.header_of_key(&key(&name))?.is_some() {
                    continue;
                }
                let kept = StoredSession {
                    _lock: lock,
                    path,
                    name,
                    session: BisectSession {
                        fresh,
                        ..BisectSession::new(question.clone())
                    },
                };
                kept.write()?;
                return Ok(kept);
            }
            let kept = StoredSession {
                _lock: lock,
                ..read(&path, name)?
            };
            let next = self.path(&format!("{}-{}", &digest[..12], number + 1));
            let over = match kept.session.replay().action() {
                Action::Broken { .. } => true,
                Action::Done => fresh,
                Action::Build { .. } | Action::Measure { .. } => fresh && !kept.session.fresh,
            };
            if over || next.is_file() {
                continue;
            }
            return Ok(kept);
        }
        Err(Error::internal("there are too many sessions"))
    }

    /// Loads the session called `name`, by default the one written last.
    pub fn find(&self, name: Option<&str>) -> Result<StoredSession> {
        let none = || {
            Error::no_results("there is no bisection yet")
                .hint("`perfquilt bisect --workload NAME` begins one")
        };
        match name {
            Some(name) => {
                let path = self.path(name);
                if !is_name(name) || !path.is_file() {
                    return Err(Error::unknown("bisection", name, self.names()?));
                }
                read(&path, name.to_owned())
            }
            None => {
                let name = self.names()?.into_iter().next().ok_or_else(none)?;
                read(&self.path(&name), name)
            }
        }
    }

    /// Returns the names of all sessions, the last written first. Skips other files of the folder.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = if_there("read", &self.folder, std::fs::read_dir(&self.folder))?;
        let mut found = Vec::new();
        for entry in entries.into_iter().flatten().flatten() {
            let file = entry.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".json"));
            let Some(name) = name.filter(|name| is_name(name) && entry.path().is_file()) else {
                continue;
            };
            if let Ok(written) = entry.metadata().and_then(|metadata| metadata.modified()) {
                found.push((std::cmp::Reverse(written), name.to_owned()));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }

    /// Keeps other processes from running the same session.
    fn lock(&self, name: &str) -> Result<Option<Lock>> {
        match locks::try_now(&self.folder.join(format!("{name}.lock"))) {
            Ok(None) => Err(Error::locked(format!(
                "another process is carrying out bisection {name}"
            ))
            .hint("`perfquilt bisect log` shows how far it is")),
            Ok(held) => Ok(held),
            // Sessions work on a file system without locks too.
            Err(_) => Ok(None),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

/// Returns the key under which the session called `name` stores its observations.
pub(super) fn key(name: &str) -> String {
    format!("bisect {name}")
}

/// Returns whether a session may have this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn read(path: &Path, name: String) -> Result<StoredSession> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, &e))?;
    let session = digest::check(text.as_bytes()).and_then(|()| BisectSession::parse(&text));
    let session = session.map_err(|error| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        error
            .at(format!(".perfquilt/bisect/{file}"), None)
            .hint("remove the file; the bisection then starts over with the stored measurements")
    })?;
    Ok(StoredSession {
        _lock: None,
        path: path.to_owned(),
        name,
        session,
    })
}

impl StoredSession {
    /// Writes the session; a kill at any moment leaves the old file or the new one.
    pub fn write(&self) -> Result<()> {
        let text = serde_json::to_vec(&self.session)
            .map_err(|error| Error::internal(format!("cannot write the session: {error}")))?;
        write_file(&self.path, &digest::sealed(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::question;
    use super::*;
    use perfquilt_judge::bisect::Event;
    use perfquilt_model::observation::ExperimentHeader;

    fn sessions(folder: &Path) -> (Sessions, Store) {
        let sessions = Sessions {
            folder: folder.join("bisect"),
        };
        (sessions, Store::open(&folder.join("bisect.db")).unwrap())
    }

    /// Opens the session, applies `events` and writes it; returns its name, and whether it is fresh.
    fn record(
        (sessions, store): &(Sessions, Store),
        context: &str,
        fresh: bool,
        events: &[Event],
    ) -> (String, bool) {
        let mut kept = sessions.open(&question(2), context, fresh, store).unwrap();
        kept.session.events.extend_from_slice(events);
        kept.write().unwrap();
        (kept.name.clone(), kept.session.fresh)
    }

    #[test]
    fn a_session_goes_on_unless_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = sessions(folder.path());
        let open = |fresh, events: &[Event]| record(&sessions, "here", fresh, events);
        let (first, _) = open(false, &[]);
        assert_eq!(open(false, &[]), (first.clone(), false));
        let (elsewhere, _) = record(&sessions, "another recipe", false, &[]);
        assert_ne!(elsewhere, first);
        // A fresh request does not continue a session that may use stored measurements; any request continues a
        // fresh one.
        let second = format!("{first}-2");
        assert_eq!(open(true, &[]), (second.clone(), true));
        for fresh in [true, false] {
            assert_eq!(open(fresh, &[]), (second.clone(), true));
        }
        // A session with an unusable end is not reopened.
        let unusable = Event::Unusable {
            state: 1,
            reason: "no compiler".into(),
            crashed: false,
        };
        assert_eq!(open(false, &[unusable]).0, second);
        let third = format!("{first}-3");
        assert_eq!(open(false, &[]), (third.clone(), false));
        // A finished session answers again, unless the request is fresh.
        let built = |state: usize| Event::Built {
            state,
            identity: "one".into(),
            seconds: 0.0,
            cached: false,
        };
        open(false, &[built(0), built(1)]);
        assert_eq!(open(false, &[]).0, third);
        assert_eq!(open(true, &[]), (format!("{first}-4"), true));
    }

    #[test]
    fn what_a_removed_session_measured_is_not_taken_for_another_ones_own() {
        let folder = tempfile::tempdir().unwrap();
        let all = sessions(folder.path());
        let (first, _) = record(&all, "here", true, &[]);
        let (sessions, store) = &all;
        let header = ExperimentHeader::new("toy-1", "make");
        store.begin(&header, &key(&first)).unwrap();
        std::fs::remove_file(sessions.path(&first)).unwrap();
        let second = format!("{first}-2");
        assert_eq!(record(&all, "here", true, &[]), (second.clone(), true));
        // A fresh session continues like any other.
        assert_eq!(record(&all, "here", false, &[]), (second, true));
    }

    #[test]
    fn what_is_no_session_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let all = sessions(folder.path());
        let (name, _) = record(&all, "here", false, &[]);
        let (sessions, _) = &all;
        for file in ["old_one.json", ".json", "notes.txt"] {
            std::fs::copy(sessions.path(&name), sessions.folder.join(file)).unwrap();
        }
        std::fs::create_dir(sessions.folder.join("folder.json")).unwrap();
        assert_eq!(sessions.names().unwrap(), std::slice::from_ref(&name));
        assert_eq!(sessions.find(None).unwrap().name, name);
    }
}
