//! Where the sessions of bisections are kept: one JSON file each, written whole.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::bisect::{Question, Session};
use crate::error::{Error, Result};
use crate::workload::hex;
use crate::workspace::Workspace;

/// A session in its file.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    /// Held while the session is carried out.
    _lock: Option<File>,
    /// Its name: the file's.
    pub name: String,
    /// The session.
    pub session: Session,
}

/// The sessions of a workspace.
#[derive(Debug)]
pub struct Sessions {
    folder: PathBuf,
}

impl Sessions {
    /// The sessions of `ws`.
    pub fn of(ws: &Workspace) -> Self {
        Sessions {
            folder: ws.state().join("bisect"),
        }
    }

    /// The session that asks `question` in `context` (machine, harness, settings), begun now or before;
    /// with `fresh`, one that is begun now.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when files cannot be read or written.
    pub fn open(&self, question: &Question, context: &str, fresh: bool) -> Result<Kept> {
        let text = serde_json::to_string(question)
            .map_err(|error| Error::internal(format!("cannot write the question: {error}")))?;
        let digest = hex(&Sha256::digest(format!("{text}\n{context}")));
        for number in 1.. {
            let name = match number {
                1 => digest[..12].to_owned(),
                _ => format!("{}-{number}", &digest[..12]),
            };
            let path = self.path(&name);
            if !path.is_file() {
                let kept = Kept {
                    _lock: Some(self.lock(&name)?),
                    path,
                    name,
                    session: Session::new(question.clone()),
                };
                kept.write()?;
                return Ok(kept);
            }
            // With --fresh, the last one goes on unless it is finished.
            let lock = self.lock(&name)?;
            let kept = Kept {
                _lock: Some(lock),
                ..read(&path, name)?
            };
            let next = self.path(&format!("{}-{}", &digest[..12], number + 1));
            let finished = *kept.session.replay().action() == crate::bisect::Action::Done;
            if next.is_file() || (fresh && finished) {
                continue;
            }
            return Ok(kept);
        }
        Err(Error::internal("there are too many sessions"))
    }

    /// The session called `name`, by default the one that was written last.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when there is none.
    pub fn find(&self, name: Option<&str>) -> Result<Kept> {
        let none = || {
            Error::usage("there is no bisection yet")
                .hint("`perfquilt bisect --workload NAME` begins one")
        };
        match name {
            Some(name) => {
                let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
                let path = self.path(name);
                if !plain || !path.is_file() {
                    let names = self.names()?;
                    return Err(crate::config::unknown("bisection", name, names.iter()));
                }
                read(&path, name.to_owned())
            }
            None => {
                let name = self.names()?.into_iter().next().ok_or_else(none)?;
                read(&self.path(&name), name)
            }
        }
    }

    /// The names of all sessions, the one that was written last first.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("read", &self.folder, &error)),
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let is_session = path
                .extension()
                .is_some_and(|extension| extension == "json");
            let stem = path
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned());
            let written = entry.metadata().and_then(|metadata| metadata.modified());
            if let (true, Some(stem), Ok(written)) = (is_session, stem, written) {
                found.push((std::cmp::Reverse(written), stem));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }

    /// Keeps other processes from carrying out the same session.
    fn lock(&self, name: &str) -> Result<File> {
        let path = self.folder.join(format!("{name}.lock"));
        std::fs::create_dir_all(&self.folder).map_err(|e| Error::io("make", &self.folder, &e))?;
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| Error::io("open", &path, &e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::usage(format!(
                "bisection {name} is being carried out by another process"
            ))
            .hint("`perfquilt bisect log` shows how far it is")),
            // A file system without locks is no reason to give up.
            _ => Ok(file),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

fn read(path: &Path, name: String) -> Result<Kept> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, &e))?;
    let session = Session::parse(&text).map_err(|error| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        error
            .at(format!(".perfquilt/bisect/{file}"), None)
            .hint("remove the file: the session then begins anew, with what was measured")
    })?;
    Ok(Kept {
        _lock: None,
        path: path.to_owned(),
        name,
        session,
    })
}

impl Kept {
    /// Writes the session; a kill at any moment leaves the old file or the new one.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be written.
    pub fn write(&self) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let io = |error: std::io::Error| Error::io("write", &self.path, &error);
        std::fs::create_dir_all(folder).map_err(io)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
        let mut text = serde_json::to_vec(&self.session)
            .map_err(|error| Error::internal(format!("cannot write the session: {error}")))?;
        text.push(b'\n');
        file.write_all(&text).map_err(io)?;
        file.persist(&self.path).map_err(|error| io(error.error))?;
        Ok(())
    }
}
