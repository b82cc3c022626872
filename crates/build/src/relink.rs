//! Relinks the executable of a built server in other layouts of the same code.
//!
//! The inputs of the link (objects, archives and the command) are stored in the result's folder `relink/`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::common_layout::{BuildInputs, LinkPlan, plan, stable_name};
use super::files::{has_stars, list};
use super::link_command;
use super::object_sections::LinkInput;
use super::padded_copy::padded_copy;
use perfquilt_config::Layouts;
use perfquilt_config::{RELINK_FOLDER, RELINK_RECORD};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::files::if_there;
use perfquilt_system::process::Command;

const NOTHING_MOVABLE: &str =
    "its objects have no code that could be moved (compiled with `-flto`, or not for 64 bits?)";

/// The content of [`RELINK_RECORD`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct RelinkRecord {
    /// The command, with the placeholder `{output}`.
    words: Vec<String>,
    env: BTreeMap<String, String>,
    /// Why the executable cannot be relinked.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Relinks the executable of a built server.
#[derive(Debug, Clone)]
pub struct Relink {
    pub(super) dir: PathBuf,
    record: RelinkRecord,
    layouts: Layouts,
    /// How to pad the inputs, once [`Relink::align`] has planned it.
    plan: Option<Arc<LinkPlan>>,
}

impl Relink {
    /// Reads the stored link of the built server in the folder `server`, for layouts of this kind.
    pub fn of(server: &Path, layouts: Layouts) -> std::result::Result<Relink, String> {
        let dir = server.join(RELINK_FOLDER);
        let record: Option<RelinkRecord> = std::fs::read(dir.join(RELINK_RECORD))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        match record {
            None => Err("its inputs for relinking were not stored".to_owned()),
            Some(RelinkRecord {
                reason: Some(reason),
                ..
            }) => Err(reason),
            Some(record) => Ok(Relink {
                dir,
                record,
                layouts,
                plan: None,
            }),
        }
    }

    /// Makes padded layouts common to all of `relinks`, builds of one program: linked with the same seed, code
    /// and data that they have in common lie at the same addresses, or as near as the linker's tables allow.
    /// A server that was not aligned with others has padded layouts of its own.
    ///
    /// Inputs that cannot be read are left out; linking them fails.
    pub fn align(relinks: &mut [&mut Relink]) {
        let mut padded: Vec<&mut Relink> = relinks
            .iter_mut()
            .map(|relink| &mut **relink)
            .filter(|relink| relink.layouts == Layouts::Padded)
            .collect();
        let names: Vec<Vec<PathBuf>> = padded.iter().map(|relink| relink.inputs()).collect();
        // Builds share equal files, so each file is read once.
        let mut distinct: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
        let found: Vec<Vec<(PathBuf, (u64, u64))>> = padded
            .iter()
            .zip(names)
            .map(|(relink, names)| {
                let file = |name: PathBuf| {
                    let path = relink.dir.join(&name);
                    let meta = std::fs::metadata(&path).ok()?;
                    let id = (meta.dev(), meta.ino());
                    distinct.entry(id).or_insert(path);
                    Some((name, id))
                };
                names.into_iter().filter_map(file).collect()
            })
            .collect();
        let files: HashMap<(u64, u64), Arc<LinkInput>> = distinct
            .into_par_iter()
            .filter_map(|(id, path)| {
                let file = File::open(path).ok()?;
                Some((id, Arc::new(LinkInput::read(file))))
            })
            .collect();
        let builds: Vec<BuildInputs> = padded
            .iter()
            .zip(found)
            .map(|(relink, found)| {
                let found = found.into_iter();
                let (names, files) = found
                    .filter_map(|(name, id)| Some((name, Arc::clone(files.get(&id)?))))
                    .unzip();
                BuildInputs {
                    names,
                    files,
                    gathers_groups: !relink.keeps_order(),
                }
            })
            .collect();
        for (relink, plan) in padded.iter_mut().zip(plan(&builds)) {
            relink.plan = Some(Arc::new(plan));
        }
    }

    /// Returns the command and its environment, with the names that inputs have in every build.
    pub(super) fn stable_command(&self) -> (Vec<String>, BTreeMap<String, String>) {
        let inputs: Vec<String> = (self.inputs().iter())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        let stable = |word: &String| {
            let parts = word.split_inclusive([',', '=']).map(|part| {
                let bare = part.trim_end_matches([',', '=']);
                if inputs.iter().any(|name| name == bare) {
                    part.replacen(bare, &stable_name(Path::new(bare)), 1)
                } else {
                    part.to_owned()
                }
            });
            parts.collect()
        };
        let words = self.record.words.iter().map(stable).collect();
        (words, self.record.env.clone())
    }

    /// Links the executable to `output`, an absolute path, from copies of the inputs that `edit` may change. It gets
    /// the name of each input and the path of the copy.
    pub(super) fn link_edited(
        &self,
        output: &Path,
        edit: &dyn Fn(&Path, &Path) -> std::io::Result<()>,
    ) -> Result<()> {
        let copy = self.copied(output, &|name, from, to| {
            std::fs::copy(from, to)?;
            edit(name, to)
        })?;
        self.run(copy.path(), output)
    }

    /// Returns the names of the inputs, in the order of the link as far as the command has it.
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        let mut names: Vec<String> =
            list(&self.dir).map_or_else(|_| Vec::new(), |files| files.into_keys().collect());
        names.retain(|name| name != RELINK_RECORD);
        let place = |name: &String| self.record.words.iter().position(|word| word == name);
        // The order of directory entries must not matter.
        names.sort_by_cached_key(|name| (place(name).unwrap_or(usize::MAX), name.clone()));
        names.into_iter().map(PathBuf::from).collect()
    }

    /// Whether the linker keeps all code in the order of the input. GNU ld gathers code by prefixes of names.
    fn keeps_order(&self) -> bool {
        let keeps = |word: &String| {
            ["-fuse-ld=mold", "-fuse-ld=lld"]
                .iter()
                .any(|l| word.contains(l))
        };
        self.record.words.iter().any(keeps)
    }

    /// Links the executable in the layout drawn from `seed` to `output`, an absolute path. The same seed
    /// gives the same bytes.
    pub fn link(&self, seed: u64, output: &Path) -> Result<()> {
        let padded = match self.layouts {
            Layouts::Off => None,
            Layouts::Padded => Some(self.padded(seed, output)?),
        };
        let dir = padded.as_ref().map_or(&*self.dir, tempfile::TempDir::path);
        self.run(dir, output)
    }

    /// Runs a link that writes `output` in the folder `dir`.
    fn run(&self, dir: &Path, output: &Path) -> Result<()> {
        let fill = |word: &String| word.replace("{output}", &output.display().to_string());
        let words: Vec<String> = self.record.words.iter().map(fill).collect();
        let command = Command::from_words(&words)?.directory(dir);
        let command = command.envs(&self.record.env).writing_beside(output);
        let done = command.run_ok(Kind::Bench);
        let error = match done {
            Ok(_) if output.is_file() => return Ok(()),
            Ok(_) => Error::relink("the linker wrote nothing"),
            Err(error) => error,
        };
        Err(match error.kind() {
            Kind::Bench => error.hint(format!(
                "relinking in {} failed; `layouts = \"off\"` in the preset measures without relinking",
                self.dir.display()
            )),
            _ => error,
        })
    }

    /// Returns the temporary space, in bytes, that [`Relink::link`] needs beside its output.
    pub fn temporary_bytes(&self) -> u64 {
        let growth = |plan: &Arc<LinkPlan>| {
            let growths = plan.values().map(|file| file.most_growth());
            growths.fold(0, u64::saturating_add)
        };
        match self.layouts {
            Layouts::Padded => list(&self.dir)
                .map_or(0, |files| files.values().sum::<u64>())
                .saturating_add(self.plan.as_ref().map_or(0, growth)),
            Layouts::Off => 0,
        }
    }

    /// Copies the inputs of the link to a folder next to `output`, with padding between code and data sections.
    fn padded(&self, seed: u64, output: &Path) -> Result<tempfile::TempDir> {
        let plan = match &self.plan {
            Some(plan) => Arc::clone(plan),
            None => {
                let mut alone = self.clone();
                Relink::align(&mut [&mut alone]);
                alone.plan.unwrap_or_default()
            }
        };
        self.copied(output, &|name, from, to| match plan.get(name) {
            Some(plan) => padded_copy(from, to, plan, seed),
            None => std::fs::copy(from, to).map(drop),
        })
    }

    /// Copies the inputs to a folder next to `output`; `copy_file` gets the name of each, its path and that of the copy.
    fn copied(
        &self,
        output: &Path,
        copy_file: &dyn Fn(&Path, &Path, &Path) -> std::io::Result<()>,
    ) -> Result<tempfile::TempDir> {
        let beside = output.parent().unwrap_or(Path::new("/"));
        let copy = tempfile::Builder::new()
            .prefix(".link-")
            .tempdir_in(beside)
            .map_err(|e| Error::io("create a folder in", beside, &e))?;
        let names = list(&self.dir)?.into_keys();
        for name in names.filter(|name| name != RELINK_RECORD) {
            let name = PathBuf::from(name);
            let (from, to) = (self.dir.join(&name), copy.path().join(&name));
            let written = to
                .parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| copy_file(&name, &from, &to));
            written.map_err(|e| Error::io("write", &to, &e))?;
        }
        Ok(copy)
    }
}

/// Removes debug information: it is never loaded, is most of the size, and takes longer to link than
/// everything else.
fn strip(file: &Path) -> Result<()> {
    let bytes = std::fs::read(file).map_err(|e| Error::io("read", file, &e))?;
    if memchr::memmem::find(&bytes, b".debug_info").is_some() {
        // A failure is harmless: the link is only larger.
        Command::new("strip")
            .args(["--strip-debug"])
            .arg(file)
            .run()?;
    }
    Ok(())
}

/// Replaces `file` with a hard link to the file of the same content in `pool`, and returns whether it has code
/// or data sections that can be padded.
fn share(file: &Path, pool: &Path) -> Result<bool> {
    let bytes = std::fs::read(file).map_err(|e| Error::io("read", file, &e))?;
    let input = LinkInput::read(std::io::Cursor::new(&bytes));
    let can_pad = (input.objects.iter()).any(|object| object.sections.iter().any(|s| s.size > 0));
    let shared = pool.join(hex::encode(Sha256::digest(&bytes)));
    // Other results share the content, so nothing may write to it.
    let read_only = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(file, read_only).map_err(|e| Error::io("protect", file, &e))?;
    // Without hard links, or beyond their maximum number, the copy stays.
    if std::fs::hard_link(file, &shared).is_ok() {
        return Ok(can_pad);
    }
    let twin = file.with_extension("twin");
    let complete = std::fs::metadata(&shared).is_ok_and(|found| found.len() == bytes.len() as u64);
    if complete && std::fs::hard_link(&shared, &twin).is_ok() {
        std::fs::rename(&twin, file).map_err(|e| Error::io("write", file, &e))?;
    }
    Ok(can_pad)
}

/// Returns the folder of files that results share, below the folder of all caches.
fn shared_pool(cache: &Path) -> PathBuf {
    cache.join("relink")
}

/// Removes files for relinking from `cache` that no built server uses any more.
pub fn sweep(cache: &Path) -> Result<()> {
    let pool = shared_pool(cache);
    let entries = if_there("read", &pool, std::fs::read_dir(&pool))?;
    for entry in entries.into_iter().flatten().flatten() {
        if entry.metadata().is_ok_and(|found| found.nlink() == 1) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// The inputs for relinking the executable of a build.
#[derive(Debug)]
pub(super) struct RelinkInputs {
    record: RelinkRecord,
    /// Name in the folder and the file to copy.
    files: Vec<(String, PathBuf)>,
}

impl RelinkInputs {
    /// No inputs, with the reason why there are none.
    pub(super) fn none(reason: impl Into<String>) -> RelinkInputs {
        RelinkInputs {
            record: RelinkRecord {
                reason: Some(reason.into()),
                ..RelinkRecord::default()
            },
            files: Vec::new(),
        }
    }

    /// Collects the inputs named by the recipe. `fill` expands placeholders except those of a single link;
    /// `matching` finds the files of a path with stars.
    pub(super) fn of_recipe(
        relink: &perfquilt_config::Relink,
        env: &BTreeMap<String, String>,
        fill: &dyn Fn(&str) -> Result<String>,
        matching: &dyn Fn(&Path) -> Vec<PathBuf>,
    ) -> Result<RelinkInputs> {
        let mut files = Vec::new();
        for (name, path) in &relink.keep {
            let path = fill(path)?;
            let found = matching(Path::new(&path));
            if found.is_empty() {
                return Err(Error::installed_file(format!(
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
        Ok(RelinkInputs {
            record: RelinkRecord {
                words: all(&relink.command)?,
                env: env
                    .map(|(name, value)| Ok((name.clone(), fill(value)?)))
                    .collect::<Result<_>>()?,
                reason: None,
            },
            files,
        })
    }

    /// Collects the inputs of ninja's command for `target` in the build tree `build`.
    pub(super) fn of_ninja(target: &Path, build: &Path, work: &Path) -> Result<RelinkInputs> {
        let Ok(target) = target.strip_prefix(build) else {
            return Ok(RelinkInputs::none(
                "the executable is not in the build tree",
            ));
        };
        let target = target.to_string_lossy();
        let output = Command::new("ninja")
            .directory(build)
            .args(["-t", "commands", &target])
            .run()?;
        let text = output.stdout_text();
        let Some(command) = text.lines().next_back().filter(|_| output.success()) else {
            return Ok(RelinkInputs::none("ninja has no command that links it"));
        };
        Ok(
            match link_command::portable(command, &target, build, work) {
                Err(reason) => RelinkInputs::none(reason),
                Ok(command) => RelinkInputs {
                    record: RelinkRecord {
                        words: command.words,
                        ..RelinkRecord::default()
                    },
                    files: command.files,
                },
            },
        )
    }

    /// Copies the inputs into the folder `result`. Results share equal files by hard links from a folder
    /// below `cache`, because a patch changes few archives.
    pub(super) fn write(&self, result: &Path, cache: &Path) -> Result<()> {
        let dir = result.join(RELINK_FOLDER);
        sweep(cache)?;
        let pool = &shared_pool(cache);
        std::fs::create_dir_all(pool).map_err(|e| Error::io("create", pool, &e))?;
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("create", &dir, &e))?;
        let mut record = self.record.clone();
        let mut can_pad = false;
        for (name, from) in &self.files {
            let to = dir.join(name);
            if let Some(folder) = to.parent() {
                std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
            }
            // Opening a pipe would block until another process writes to it.
            if !from.is_file() {
                return Err(Error::installed_file(format!(
                    "cannot keep {} for relinking: it is not a file",
                    from.display()
                )));
            }
            std::fs::copy(from, &to).map_err(|e| Error::io("copy to", &to, &e))?;
            strip(&to)?;
            can_pad |= share(&to, pool)?;
        }
        if !can_pad {
            record
                .reason
                .get_or_insert_with(|| NOTHING_MOVABLE.to_owned());
        }
        let path = dir.join(RELINK_RECORD);
        let text = serde_json::to_vec_pretty(&record).map_err(Error::json)?;
        std::fs::write(&path, text).map_err(|e| Error::io("write", &path, &e))
    }
}
