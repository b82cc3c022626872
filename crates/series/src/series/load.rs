//! Loading a series from a workspace.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::compression::{FILE_LIMIT, compression, decompress};
use super::diff::{Binary, Line};
use super::files::{QuiltSettings, SeriesPaths, find};
use super::{FileDiff, Header, Hunk, Patch, Series, SeriesEntry, SeriesFile};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};

/// A series with all its faults.
#[derive(Debug)]
pub struct SeriesSurvey {
    /// The series of the readable patches.
    pub series: Series,
    /// The faults of the other patches and of the series file.
    pub faults: Vec<Error>,
    /// Patch files that `series` does not name, as paths below the folder of patches.
    pub unused: Vec<String>,
    /// The paths of the series file and its patches.
    pub paths: SeriesPaths,
}

impl Series {
    /// Loads `series` and its patches.
    pub fn load(ws: &Workspace) -> Result<Series> {
        Series::load_for(ws, None)
    }

    /// Loads the series that applies to a release (`None`: the current one): the release's own series if the
    /// configuration names one.
    pub fn load_for(ws: &Workspace, release: Option<&str>) -> Result<Series> {
        survey(ws, release)?.into_series()
    }

    /// Loads the series of a job's workspace, of which others wrote the patches: without quilt's environment variables,
    /// which a job does not get, and with lower limits.
    pub fn load_for_job(job: &Workspace) -> Result<Series> {
        survey_at(job, paths_with(job, None, &|_| None)?, &JOB_LIMITS)?.into_series()
    }
}

impl SeriesSurvey {
    /// Returns the series if it has no fault, else the first fault.
    fn into_series(self) -> Result<Series> {
        match self.faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(self.series),
        }
    }
}

/// Loads the readable part of a release's series (`None`: the current one's) and collects every fault.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when there is no series at all,
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an unknown release.
pub fn survey(ws: &Workspace, release: Option<&str>) -> Result<SeriesSurvey> {
    survey_at(ws, paths(ws, release)?, &LIMITS)
}

/// Loads the readable part of the series at `paths` and collects every fault.
fn survey_at(ws: &Workspace, paths: SeriesPaths, limits: &Limits) -> Result<SeriesSurvey> {
    let shown = paths.series.to_string_lossy().into_owned();
    let refused = |what: String| Err(Error::patch_missing(what).at(&*shown, None));
    let bytes = match read_file(&ws.root().join(&paths.series), limits.series_bytes) {
        Ok(bytes) if bytes.len() as u64 > limits.series_bytes => {
            return refused(format!("larger than {} MiB", limits.series_bytes >> 20));
        }
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(no_series(&paths));
        }
        Err(error) => {
            return refused(format!("cannot be read: {error}"));
        }
    };
    let (file, mut faults) = SeriesFile::parse(&bytes, &shown);
    if file.entries().len() > limits.patches {
        return refused(format!("more than {} patches", limits.patches));
    }
    let folder = ws.root().join(&paths.patches);
    let there = patch_files(&folder);
    let taken = SeriesSize::default();
    let read = |entry: &SeriesEntry| -> Result<Patch> {
        let path = paths.patches.join(&entry.name);
        let shown_patch = path.to_string_lossy();
        taken
            .check(limits)
            .map_err(|error| error.at(&*path, None))?;
        let bytes = read_patch(&folder, entry, &shown_patch)?.ok_or_else(|| {
            let error = missing(entry, &shown, (&folder, &paths.patches), &there);
            error.details(paths.because.clone())
        })?;
        taken.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        let patch = Patch::parse(entry, &shown_patch, &bytes)?;
        taken
            .memory
            .fetch_add(memory_size(&patch), Ordering::Relaxed);
        Ok(patch)
    };
    let mut patches = Vec::with_capacity(file.entries().len());
    let entries = file.entries().par_iter();
    let results: Vec<Result<Patch>> = entries
        .with_min_len(limits.patches_per_thread)
        .map(read)
        .collect();
    // Whether the series is too large must not depend on the order in which threads read it.
    taken
        .check(limits)
        .map_err(|error| error.at(&*shown, None))?;
    for result in results {
        match result {
            Ok(patch) => patches.push(patch),
            Err(fault) => faults.push(fault),
        }
    }
    let named: BTreeSet<&str> = file.entries().iter().map(|e| e.name.as_str()).collect();
    let others = folders_of_other_series(ws, &paths.patches);
    let unused = there
        .into_iter()
        .filter(|name| !named.contains(name.as_str()) && looks_like_patch(name))
        .filter(|name| {
            !others
                .iter()
                .any(|other| Path::new(name).starts_with(other))
        })
        .collect();
    Ok(SeriesSurvey {
        series: Series::assemble(file, patches),
        faults,
        unused,
        paths,
    })
}

/// Limits of a series. Sizes are tested before each patch, so one patch per thread may exceed them.
struct Limits {
    /// Bytes of the series file.
    series_bytes: u64,
    /// Number of patches.
    patches: usize,
    /// Bytes of all patch files, decompressed.
    bytes: usize,
    /// Approximate memory of all parsed patches, in bytes.
    memory: usize,
    /// Minimum number of patches that justifies another thread.
    patches_per_thread: usize,
}

/// Limits of the user's own series.
const LIMITS: Limits = Limits {
    series_bytes: FILE_LIMIT,
    patches: usize::MAX,
    bytes: 1 << 30,
    memory: 2 << 30,
    patches_per_thread: 64,
};

/// Limits of a series that untrusted authors may have written, which one thread loads.
const JOB_LIMITS: Limits = Limits {
    series_bytes: 1 << 20,
    patches: 10_000,
    bytes: 256 << 20,
    memory: 512 << 20,
    patches_per_thread: usize::MAX,
};

/// Size of the patches that were read so far.
#[derive(Default)]
struct SeriesSize {
    bytes: AtomicUsize,
    memory: AtomicUsize,
}

impl SeriesSize {
    /// Returns the error of a series above its limits.
    fn check(&self, limits: &Limits) -> Result<()> {
        let what = if self.bytes.load(Ordering::Relaxed) > limits.bytes {
            let most = limits.bytes >> 20;
            format!("the patches have more than {most} MiB, decompressed")
        } else if self.memory.load(Ordering::Relaxed) > limits.memory {
            let most = limits.memory >> 20;
            format!("the series takes more than {most} MiB of memory")
        } else {
            return Ok(());
        };
        Err(Error::patch_missing(what))
    }
}

/// Estimates the memory that a patch takes, in bytes.
fn memory_size(patch: &Patch) -> usize {
    let rest = &patch.rest;
    let numbers = [
        &rest.stray,
        &rest.without_content,
        &rest.announced,
        &rest.without_hunks,
    ];
    let numbers: usize = numbers.into_iter().map(Vec::len).sum();
    let numbers = numbers + 2 * rest.text.len();
    let names = patch.name.len() + patch.shown.len() + patch.title.len();
    size_of::<Patch>()
        + names
        + numbers * size_of::<usize>()
        + header_size(&patch.header)
        + patch.files.iter().map(diff_size).sum::<usize>()
}

/// Estimates the memory that the parts of a header take, in bytes.
fn header_size(header: &Header) -> usize {
    let subject = header.subject.as_ref().map_or(0, String::len);
    let author = header.author.as_ref();
    let author = author.map_or(0, |author| author.name.len() + author.email.len());
    let fields = header.fields.iter();
    let field = size_of::<(String, String)>();
    let fields: usize = fields
        .map(|(name, value)| field + name.len() + value.len())
        .sum();
    subject + author + header.body.len() + fields
}

/// Estimates the memory that a diff takes, in bytes.
fn diff_size(diff: &FileDiff) -> usize {
    let hunk_size = |hunk: &Hunk| -> usize {
        let lines = hunk.lines.iter();
        let text = |line: &Line| line.text.len() + line.after.as_ref().map_or(0, Vec::len);
        size_of::<Hunk>()
            + lines
                .map(|line| size_of::<Line>() + text(line))
                .sum::<usize>()
    };
    let names: usize = diff.names().map(Vec::len).sum();
    let binary = diff.binary.as_ref().map_or(0, Binary::size);
    size_of::<FileDiff>() + names + binary + diff.hunks.iter().map(hunk_size).sum::<usize>()
}

/// Returns the paths of a release's series (`None`: the current one's) and of its patches. A release's own folder takes
/// precedence over quilt's files in `.pc`, these over quilt's environment, and that over `[series]`.
pub fn paths(ws: &Workspace, release: Option<&str>) -> Result<SeriesPaths> {
    paths_with(ws, release, &variable)
}

/// Returns the paths of a release's series like [`paths`], with quilt's environment read by `variable`.
fn paths_with(
    ws: &Workspace,
    release: Option<&str>,
    variable: &dyn Fn(&str) -> Option<PathBuf>,
) -> Result<SeriesPaths> {
    let files = ws.config.series_of(release)?;
    let exists = |path: &Path| ws.root().join(path).is_file();
    if files.patches != ws.config.series.patches {
        return Ok(find(
            &QuiltSettings::default(),
            &files.file,
            &files.patches,
            exists,
        ));
    }
    let pc = variable("QUILT_PC");
    let folder = ws
        .root()
        .join(pc.as_deref().unwrap_or(Path::new(QUILT_FOLDER)));
    let noted = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        let text = text.trim_end_matches('\n');
        (!text.is_empty()).then(|| PathBuf::from(text))
    };
    // Quilt's notes outlive its patches, and its variables are those of other packages too: a folder that is not there
    // is not meant.
    let is_folder = |path: &PathBuf| ws.root().join(path).is_dir();
    let noted_patches = noted(".quilt_patches");
    let is_stale = noted_patches
        .as_ref()
        .is_some_and(|folder| !is_folder(folder));
    let quilt = QuiltSettings {
        noted_series: noted(".quilt_series").filter(|_| !is_stale),
        noted_patches: noted_patches.filter(is_folder),
        patches: variable("QUILT_PATCHES").filter(is_folder),
        series: variable("QUILT_SERIES"),
        pc,
    };
    Ok(find(&quilt, &files.file, &files.patches, exists))
}

/// Returns the value of one of quilt's variables, if it is set.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The default folder of quilt's state, relative to the workspace.
const QUILT_FOLDER: &str = ".pc";

/// Returns the folder of quilt's state, relative to the workspace.
pub fn quilt_folder() -> PathBuf {
    variable("QUILT_PC").unwrap_or_else(|| PathBuf::from(QUILT_FOLDER))
}

/// The location of a release's series, as paths that can be opened.
#[derive(Debug, Clone)]
pub struct SeriesLocation {
    /// The `series` file.
    pub file: PathBuf,
    /// The path of the `series` file in messages.
    pub shown: String,
    /// The folder of the patches.
    pub folder: PathBuf,
    /// The path of the patch folder in messages.
    pub shown_folder: PathBuf,
}

impl SeriesLocation {
    /// Finds the series of a release (`None`: the current one).
    pub fn of(ws: &Workspace, release: Option<&str>) -> Result<SeriesLocation> {
        let paths = paths(ws, release)?;
        Ok(SeriesLocation {
            file: ws.root().join(&paths.series),
            shown: paths.series.to_string_lossy().into_owned(),
            folder: ws.root().join(&paths.patches),
            shown_folder: paths.patches,
        })
    }

    /// Returns a patch's path for messages.
    pub fn shown_patch(&self, name: &str) -> String {
        self.shown_folder.join(name).to_string_lossy().into_owned()
    }

    /// Reads a patch's file without decompressing it.
    pub fn raw(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.folder.join(name);
        read_file(&path, u64::MAX).map_err(|e| Error::io("read", &path, &e))
    }

    /// Reads and decompresses a patch.
    pub fn bytes(&self, entry: &SeriesEntry) -> Result<Vec<u8>> {
        let shown = self.shown_patch(&entry.name);
        read_patch(&self.folder, entry, &shown)?
            .ok_or_else(|| Error::patch_missing("the patch is gone").at(shown, None))
    }

    /// Returns every file below the folder of patches, as a path relative to it.
    pub fn files(&self) -> BTreeSet<String> {
        patch_files(&self.folder)
    }
}

fn no_series(paths: &SeriesPaths) -> Error {
    let error = Error::series_missing("there is no series file").at(&paths.series, None);
    match &paths.because {
        Some(because) => error.hint(format!(
            "{because}, which takes precedence over the configuration"
        )),
        None => {
            error.hint("list the patches there, one name a line; an empty file is an empty series")
        }
    }
}

/// Folders below `folder` that hold the series of other releases.
fn folders_of_other_series(ws: &Workspace, folder: &Path) -> Vec<PathBuf> {
    let releases = ws.config.upstream.release.iter();
    let folders = releases.filter_map(|release| release.patches.as_deref());
    folders
        .chain([ws.config.series.patches.as_path()])
        .filter_map(|other| other.strip_prefix(folder).ok())
        .filter(|below| !below.as_os_str().is_empty())
        .map(Path::to_owned)
        .collect()
}

/// Reads a regular file: all of it, or `limit` plus one bytes of a larger one. Rejects pipes, which block without a
/// writer, and devices, which may have no end.
fn read_file(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(std::io::Error::other("no regular file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads and decompresses a patch; `None` when there is no such file.
fn read_patch(folder: &Path, entry: &SeriesEntry, shown: &str) -> Result<Option<Vec<u8>>> {
    let path = folder.join(&entry.name);
    let bytes = match read_file(&path, FILE_LIMIT) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::patch_missing(format!("cannot be read: {error}")).at(shown, None));
        }
    };
    decompress(&entry.name, bytes, shown).map(Some)
}

/// Returns the error for an entry without a file; `folder` is the folder of patches, and `shown` its name in messages.
fn missing(
    entry: &SeriesEntry,
    series: &str,
    (folder, shown): (&Path, &Path),
    there: &BTreeSet<String>,
) -> Error {
    let shown = shown.display();
    let error = Error::patch_missing(format!("patch \"{}\" not found in {shown}/", entry.name))
        .at(series, entry.line);
    if !folder.is_dir() {
        return error.hint(match std::fs::read_link(folder) {
            Ok(target) => format!(
                "{shown} is a link to {}, which is not there",
                target.display()
            ),
            Err(_) => format!("there is no folder {shown}/"),
        });
    }
    // The extensions are alike and would make any two names similar.
    let stem = |name: &str| {
        name.rsplit_once('.')
            .map_or(name, |(stem, _)| stem)
            .to_owned()
    };
    let wanted = stem(&entry.name);
    let nearest = there
        .iter()
        .map(|name| (strsim::jaro_winkler(&stem(name), &wanted), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((_, name)) => error.hint(format!("did you mean \"{name}\"?")),
        None => error.hint("add the file, or remove the line from the series"),
    }
}

/// Returns every file below the folder of patches, as a path relative to it.
fn patch_files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![(folder.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < 8 => {
                    waiting.push((entry.path(), format!("{name}/"), depth + 1));
                }
                Ok(kind) if kind.is_file() => {
                    found.insert(name);
                }
                _ => {}
            }
        }
    }
    found
}

/// Returns whether a file's name is one that patches have.
pub fn looks_like_patch(name: &str) -> bool {
    let plain = name.strip_suffix(compression(name)).unwrap_or(name);
    let plain = plain.to_ascii_lowercase();
    [".patch", ".diff", ".dpatch"]
        .iter()
        .any(|end| plain.ends_with(end))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const DIFF: &str = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";

    /// Creates a workspace whose `count` compressed patches have headers of `header` bytes.
    fn workspace(count: usize, header: usize) -> (tempfile::TempDir, Workspace) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for part in ["bench-config", "patches"] {
            std::fs::create_dir(root.join(part)).unwrap();
        }
        let config = "[upstream]\nname = \"x\"\ncurrent = \"1\"\n[[upstream.release]]\nversion = \"1\"\ndirectory = \"up\"\n";
        std::fs::write(root.join("bench-config/perfquilt.toml"), config).unwrap();
        let names: Vec<String> = (0..count).map(|at| format!("{at}.patch.gz")).collect();
        std::fs::write(root.join("series"), names.join("\n") + "\n").unwrap();
        let text = "x".repeat(header) + "\n" + DIFF;
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        for name in names {
            std::fs::write(root.join("patches").join(name), &packed).unwrap();
        }
        let ws = Workspace::open_with_cache(root, root.join("cache")).unwrap();
        (folder, ws)
    }

    #[test]
    fn headers_and_decompressed_bytes_count() {
        const KIB: usize = 1 << 10;
        let (_folder, ws) = workspace(8, 512 * KIB);
        let load = |limits: &Limits| {
            let found = survey_at(&ws, paths(&ws, None).unwrap(), limits);
            found.map(|found| found.faults.len())
        };
        assert_eq!(load(&LIMITS).unwrap(), 0);
        assert_eq!(load(&JOB_LIMITS).unwrap(), 0);
        // A header is kept as body and as title.
        for (memory, bytes, words) in [
            (
                6 << 20,
                1 << 30,
                "series: the series takes more than 6 MiB of memory",
            ),
            (
                1 << 30,
                2 << 20,
                "series: the patches have more than 2 MiB, decompressed",
            ),
            // Reached by the last patch alone.
            (
                1 << 30,
                4 << 20,
                "series: the patches have more than 4 MiB, decompressed",
            ),
        ] {
            for patches_per_thread in [1, usize::MAX] {
                let limits = Limits {
                    bytes,
                    memory,
                    patches_per_thread,
                    ..LIMITS
                };
                assert_eq!(load(&limits).unwrap_err().to_string(), words);
            }
        }
    }

    #[test]
    fn jobs_have_lower_limits() {
        let (folder, ws) = workspace(1, 10);
        let write = |text: String| {
            std::fs::write(folder.path().join("series"), text).unwrap();
        };
        assert_eq!(Series::load_for_job(&ws).unwrap().patches().len(), 1);
        write(
            (0..=JOB_LIMITS.patches)
                .map(|at| format!("{at}\n"))
                .collect(),
        );
        let error = Series::load_for_job(&ws).unwrap_err();
        assert_eq!(error.to_string(), "series: more than 10000 patches");
        write("#\n".repeat(1 << 20));
        let error = Series::load_for_job(&ws).unwrap_err();
        assert_eq!(error.to_string(), "series: larger than 1 MiB");
    }

    #[test]
    fn a_missing_patch_is_not_an_empty_patch() {
        let folder = tempfile::tempdir().unwrap();
        let location = SeriesLocation {
            file: folder.path().join("series"),
            shown: "series".to_owned(),
            folder: folder.path().to_owned(),
            shown_folder: PathBuf::from("patches"),
        };
        let (series, _) = SeriesFile::parse(b"a.patch\n", "series");
        let entry = &series.entries()[0];
        let error = location.bytes(entry).unwrap_err();
        assert_eq!(error.to_string(), "patches/a.patch: the patch is gone");
        std::fs::write(folder.path().join("a.patch"), "").unwrap();
        assert_eq!(location.bytes(entry).unwrap(), b"");
    }
}
