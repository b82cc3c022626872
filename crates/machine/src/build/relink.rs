//! The executable of a built server in other layouts of the same code.
//!
//! What its link needs is kept in the result's folder `relink/`: objects, archives, and the command.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::cache::{has_stars, list};
use super::{link_command, padding};
use perfquilt_config::Layouts;
use perfquilt_config::{RELINK_FOLDER, RELINK_RECORD};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::digest::hex;
use perfquilt_system::process::Command;

const NO_SHUFFLE: &str = "its linker cannot shuffle: install mold or lld, and set \
                          `linker = \"auto\"` in the recipe, or say `--layouts padded`";
const NOTHING_MOVES: &str =
    "its objects have no code that could be moved (compiled with `-flto`, or not for 64 bits?)";

/// The content of [`RELINK_RECORD`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Stored {
    /// The command; `{output}` is to be filled in.
    words: Vec<String>,
    /// What shuffles, added to the command; `{seed}` is to be filled in. Nothing where the linker cannot.
    shuffle: Vec<String>,
    env: BTreeMap<String, String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// How to link a built server's executable again.
#[derive(Debug, Clone)]
pub struct Relink {
    dir: PathBuf,
    stored: Stored,
    layouts: Layouts,
}

impl Relink {
    /// Of the built server in the folder `server`, in layouts of this kind.
    ///
    /// # Errors
    /// In words, why it cannot be linked again so.
    pub fn of(server: &Path, layouts: Layouts) -> std::result::Result<Relink, String> {
        let dir = server.join(RELINK_FOLDER);
        let stored: Option<Stored> = std::fs::read(dir.join(RELINK_RECORD))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        match stored {
            None => Err("nothing was kept to link it again".to_owned()),
            Some(Stored {
                reason: Some(reason),
                ..
            }) => Err(reason),
            Some(stored) if layouts == Layouts::Shuffled && stored.shuffle.is_empty() => {
                Err(NO_SHUFFLE.to_owned())
            }
            Some(stored) => Ok(Relink {
                dir,
                stored,
                layouts,
            }),
        }
    }

    /// Writes the executable in the layout that `seed` stands for to `output`, an absolute path. The
    /// same seed gives the same bytes.
    ///
    /// # Errors
    /// [`Kind::Bench`] when the linker fails; [`Kind::Interrupted`].
    pub fn link(&self, seed: u64, output: &Path) -> Result<()> {
        let fill = |word: &String| {
            word.replace("{output}", &output.display().to_string())
                .replace("{seed}", &seed.to_string())
        };
        let mut words: Vec<String> = self.stored.words.iter().map(fill).collect();
        let padded = match self.layouts {
            Layouts::Off => None,
            Layouts::Shuffled => {
                words.extend(self.stored.shuffle.iter().map(fill));
                None
            }
            Layouts::Padded => Some(self.padded(seed, output)?),
        };
        let dir = padded.as_ref().map_or(&*self.dir, tempfile::TempDir::path);
        let mut command = Command::from_words(&words)?.directory(dir);
        for (name, value) in &self.stored.env {
            command = command.env(name, value);
        }
        let done = command.run_ok(Kind::Bench);
        let error = match done {
            Ok(_) if output.is_file() => return Ok(()),
            Ok(_) => Error::bench("the linker wrote nothing"),
            Err(error) => error,
        };
        Err(match error.kind() {
            Kind::Bench => error.hint(format!(
                "linking again in {} failed; `--layouts off` measures without",
                self.dir.display()
            )),
            _ => error,
        })
    }

    /// Bytes that [`Relink::link`] needs for a while beside its output.
    pub fn bytes(&self) -> u64 {
        match self.layouts {
            Layouts::Padded => list(&self.dir).map_or(0, |files| files.values().sum()),
            Layouts::Off | Layouts::Shuffled => 0,
        }
    }

    /// A copy of what the link needs beside `output`, with code and data moved apart.
    fn padded(&self, seed: u64, output: &Path) -> Result<tempfile::TempDir> {
        let beside = output.parent().unwrap_or(Path::new("/"));
        let copy = tempfile::Builder::new()
            .prefix(".link-")
            .tempdir_in(beside)
            .map_err(|e| Error::io("create a folder in", beside, &e))?;
        let mut files: Vec<PathBuf> = list(&self.dir)?
            .into_keys()
            .filter(|name| name != RELINK_RECORD)
            .map(PathBuf::from)
            .collect();
        // One draw after the other: the order of a folder's entries must not matter.
        files.sort_unstable();
        let mut random = StdRng::seed_from_u64(seed);
        for name in files {
            let (from, to) = (self.dir.join(&name), copy.path().join(&name));
            let written = to
                .parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| copy_padded(&from, &to, &mut random));
            written.map_err(|e| Error::io("write", &to, &e))?;
        }
        Ok(copy)
    }
}

fn copy_padded(from: &Path, to: &Path, random: &mut StdRng) -> std::io::Result<()> {
    std::fs::copy(from, to)?;
    // What is kept is read-only.
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o600))?;
    let file = File::options().write(true).open(to)?;
    for section in padding::sections(File::open(from)?) {
        let (at, bytes) = section.draw(random);
        file.write_all_at(&bytes, at)?;
    }
    Ok(())
}

/// Removes debug information: nothing loads it, it is most of the size, and linking it takes longer
/// than all the rest.
fn strip(file: &Path) -> Result<()> {
    let bytes = std::fs::read(file).map_err(|e| Error::io("read", file, &e))?;
    if memchr::memmem::find(&bytes, b".debug_info").is_some() {
        // Where it fails, there is only more to link.
        Command::new("strip")
            .args(["--strip-debug"])
            .arg(file)
            .run()?;
    }
    Ok(())
}

/// Makes `file` one with the file of the same content in `parts`, and says whether it has code or
/// data that can be moved apart.
fn share(file: &Path, parts: &Path) -> Result<bool> {
    let bytes = std::fs::read(file).map_err(|e| Error::io("read", file, &e))?;
    let can_pad = !padding::sections(std::io::Cursor::new(&bytes)).is_empty();
    let part = parts.join(hex(&Sha256::digest(&bytes)));
    // Shared, so that nothing may write to it any more.
    let read_only = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(file, read_only).map_err(|e| Error::io("protect", file, &e))?;
    // A file system without hard links keeps copies; so does one with too many of them.
    if std::fs::hard_link(file, &part).is_ok() {
        return Ok(can_pad);
    }
    let twin = file.with_extension("twin");
    let whole = std::fs::metadata(&part).is_ok_and(|found| found.len() == bytes.len() as u64);
    if whole && std::fs::hard_link(&part, &twin).is_ok() {
        std::fs::rename(&twin, file).map_err(|e| Error::io("write", file, &e))?;
    }
    Ok(can_pad)
}

/// The folder of files that results share, below the folder of all caches.
fn parts(cache: &Path) -> PathBuf {
    cache.join("relink")
}

/// Removes from `cache` the files for linking again that no built server has any more.
///
/// # Errors
/// The folder cannot be read.
pub fn sweep(cache: &Path) -> Result<()> {
    let parts = parts(cache);
    let entries = match std::fs::read_dir(&parts) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("read", &parts, &error)),
    };
    for entry in entries.flatten() {
        if entry.metadata().is_ok_and(|found| found.nlink() == 1) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// What to keep of a build in order to link its executable again.
#[derive(Debug)]
pub(super) struct Keep {
    stored: Stored,
    /// Name in the folder, and the file to copy.
    files: Vec<(String, PathBuf)>,
}

impl Keep {
    /// Nothing, for this reason.
    pub(super) fn nothing(reason: impl Into<String>) -> Keep {
        Keep {
            stored: Stored {
                reason: Some(reason.into()),
                ..Stored::default()
            },
            files: Vec::new(),
        }
    }

    /// What the recipe says. `fill` fills in placeholders, but for those of a single link; `matching`
    /// finds the files a path with stars means.
    pub(super) fn of_recipe(
        relink: &perfquilt_config::Relink,
        env: &BTreeMap<String, String>,
        fill: &dyn Fn(&str) -> Result<String>,
        matching: &dyn Fn(&Path) -> Vec<PathBuf>,
    ) -> Result<Keep> {
        let mut files = Vec::new();
        for (name, path) in &relink.keep {
            let path = fill(path)?;
            let found = matching(Path::new(&path));
            if found.is_empty() {
                return Err(Error::build(format!(
                    "there is no {path}, which the recipe keeps as `{name}`"
                ))
                .hint("correct `keep` in the recipe's section `relink`"));
            }
            for file in found {
                let base = file.file_name().unwrap_or_default().to_string_lossy();
                let inside = if has_stars(Path::new(&path)) {
                    format!("{name}/{base}")
                } else {
                    name.clone()
                };
                files.push((inside, file));
            }
        }
        let all = |words: &[String]| -> Result<Vec<String>> {
            words.iter().map(|word| fill(word)).collect()
        };
        let env = env.iter();
        Ok(Keep {
            stored: Stored {
                words: all(&relink.command)?,
                shuffle: all(&relink.shuffle)?,
                env: env
                    .map(|(name, value)| Ok((name.clone(), fill(value)?)))
                    .collect::<Result<_>>()?,
                reason: None,
            },
            files,
        })
    }

    /// What ninja's command for `target` in the build tree `build` needs.
    pub(super) fn of_ninja(target: &Path, build: &Path, work: &Path) -> Result<Keep> {
        let Ok(target) = target.strip_prefix(build) else {
            return Ok(Keep::nothing("the executable is not in the build tree"));
        };
        let target = target.to_string_lossy();
        let output = Command::new("ninja")
            .directory(build)
            .args(["-t", "commands", &target])
            .run()?;
        let text = output.stdout_text();
        let Some(command) = text.lines().next_back().filter(|_| output.success()) else {
            return Ok(Keep::nothing("ninja does not say how it is linked"));
        };
        Ok(match link_command::again(command, &target, build, work) {
            Err(reason) => Keep::nothing(reason),
            Ok(again) => Keep {
                stored: Stored {
                    words: again.words,
                    shuffle: again.shuffle,
                    ..Stored::default()
                },
                files: again.files,
            },
        })
    }

    /// Copies everything into the folder `result`. Files that another result has as well are shared
    /// with it, by hard links from a folder below `cache`: a patch changes few archives.
    pub(super) fn write(&self, result: &Path, cache: &Path) -> Result<()> {
        let dir = result.join(RELINK_FOLDER);
        sweep(cache)?;
        let parts = &parts(cache);
        std::fs::create_dir_all(parts).map_err(|e| Error::io("create", parts, &e))?;
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("create", &dir, &e))?;
        let mut stored = self.stored.clone();
        let mut can_pad = false;
        for (name, from) in &self.files {
            let to = dir.join(name);
            if let Some(folder) = to.parent() {
                std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
            }
            // Opening a pipe would wait for whoever writes to it.
            if !from.is_file() {
                return Err(Error::build(format!(
                    "{}, which is kept for linking again, is no file",
                    from.display()
                )));
            }
            std::fs::copy(from, &to).map_err(|e| Error::io("copy", from, &e))?;
            strip(&to)?;
            can_pad |= share(&to, parts)?;
        }
        if !can_pad {
            stored
                .reason
                .get_or_insert_with(|| NOTHING_MOVES.to_owned());
        }
        let path = dir.join(RELINK_RECORD);
        let text = serde_json::to_vec_pretty(&stored)
            .map_err(|error| Error::internal(format!("cannot describe a link: {error}")))?;
        std::fs::write(&path, text).map_err(|e| Error::io("write", &path, &e))
    }
}
