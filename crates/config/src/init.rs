//! Creation of workspaces: the configurations that this repository and its examples use, and an empty series.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

use crate::CONFIG_FILE;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::write_file;

/// A server that workspaces can be created for.
#[derive(Debug, Clone, Copy)]
pub struct Template {
    /// The name on the command line.
    pub server: &'static str,
    /// Its folder `bench-config`.
    files: &'static Dir<'static>,
}

macro_rules! template {
    ($server:literal, $folder:tt) => {
        Template {
            server: $server,
            files: &include_dir!($folder),
        }
    };
}

/// The servers. `tests/init.rs` compares their files with the configurations of this repository and its examples.
pub const TEMPLATES: &[Template] = &[
    template!("mariadb", "$ROOT/bench-config"),
    template!("memcached", "$ROOT/examples/memcached/bench-config"),
    template!("mysql", "$ROOT/examples/mysql/bench-config"),
    template!("nginx", "$ROOT/examples/nginx/bench-config"),
    template!("postgresql", "$ROOT/examples/postgresql/bench-config"),
    template!("redis", "$ROOT/examples/redis/bench-config"),
    template!("valkey", "$ROOT/examples/valkey/bench-config"),
];

/// Files that are the same for every server.
const COMMON: [(&str, &str); 2] = [
    (
        "series",
        "# The patches in order, one a line, in quilt's format.\n",
    ),
    (".gitignore", ".perfquilt/\n"),
];

impl Template {
    /// Returns the files of a new workspace with their contents. The configuration comes last, because it marks a folder as a
    /// workspace: after an interruption, the same command continues.
    fn files(&self) -> Vec<(PathBuf, &'static str)> {
        let mut files: Vec<(PathBuf, &'static str)> =
            COMMON.map(|(name, text)| (name.into(), text)).into();
        let mut folders = vec![self.files];
        while let Some(folder) = folders.pop() {
            folders.extend(folder.dirs());
            let texts = folder
                .files()
                .filter_map(|file| Some((file.path(), file.contents_utf8()?)));
            files.extend(texts.map(|(path, text)| (Path::new("bench-config").join(path), text)));
        }
        files.sort_by_key(|(path, _)| (path == Path::new(CONFIG_FILE), path.clone()));
        files
    }
}

/// Starts of the lines about the patches of this repository and its examples, which a new workspace does not have: series of
/// single releases, and the patches that a workload is meant for.
const OF_PATCHES: [&str; 2] = ["patches = ", "exercises = "];

/// The presets that are only for the series of an example.
const PRESETS_OF_EXAMPLES: [&str; 2] = ["[preset.replay]", "[preset.replay-handler]"];

/// Returns a configuration without what is about the patches of this repository and its examples.
fn without_patches(content: &str) -> String {
    let is_of_example = |paragraph: &str| {
        let mut lines = paragraph.lines();
        lines.any(|line| PRESETS_OF_EXAMPLES.contains(&line))
    };
    let is_about_patches = |line: &&str| OF_PATCHES.iter().any(|start| line.starts_with(start));
    let paragraphs = content
        .split("\n\n")
        .filter(|paragraph| !is_of_example(paragraph));
    let kept = paragraphs.collect::<Vec<_>>().join("\n\n");
    kept.split_inclusive('\n')
        .filter(|line| !is_about_patches(line))
        .collect()
}

/// Returns the template for a server.
pub fn template(server: &str) -> Result<&'static Template> {
    let template = TEMPLATES.iter().find(|template| template.server == server);
    template.ok_or_else(|| {
        let names = TEMPLATES.iter().map(|template| template.server);
        Error::unknown("template for the server", server, names)
    })
}

/// Creates a workspace for a server in `dir`, and `dir` itself if it is missing. Existing files are never changed. Returns the
/// written files, relative to `dir`.
pub fn init(dir: &Path, template: &Template) -> Result<Vec<PathBuf>> {
    if dir.join(CONFIG_FILE).exists() {
        return Err(
            Error::folder_taken(format!("{} is already a workspace", dir.display()))
                .hint("`perfquilt status` shows it"),
        );
    }
    let mut written = Vec::new();
    let patches = dir.join("patches");
    fs::create_dir_all(&patches).map_err(|e| not_created(dir, &patches, &e))?;
    let link = patches.join("series");
    // `git quiltimport`, gbp and StGit look for the series beside the patches.
    if link.symlink_metadata().is_err() {
        std::os::unix::fs::symlink("../series", &link).map_err(|e| Error::io("link", &link, &e))?;
        written.push(PathBuf::from("patches/series"));
    }
    for (name, content) in template.files() {
        let path = dir.join(&name);
        if path.exists() {
            continue;
        }
        let content = if name.extension().is_some_and(|end| end == "toml") {
            without_patches(content)
        } else {
            content.to_owned()
        };
        write_file(&path, content.as_bytes())
            .map_err(|error| obstacle(dir, &path).unwrap_or(error))?;
        written.push(name);
    }
    Ok(written)
}

/// Returns the error for a workspace in `dir` whose folder `path` cannot be created.
fn not_created(dir: &Path, path: &Path, error: &std::io::Error) -> Error {
    if let Some(error) = obstacle(dir, path) {
        return error;
    }
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Error::output(format!(
                "cannot create a workspace in {}: {error}",
                dir.display()
            ))
            .hint("name a folder that can be created: `perfquilt init DIR`")
        }
        _ => Error::io("create", path, error),
    }
}

/// Returns the error for a file in the place of a folder that leads to `path`; `None` if there is none.
fn obstacle(dir: &Path, path: &Path) -> Option<Error> {
    let mut folders = path.ancestors();
    let file = folders.find(|folder| folder.exists() && !folder.is_dir())?;
    let error = Error::output(format!(
        "cannot create a workspace in {}: {} is not a folder",
        dir.display(),
        file.display()
    ));
    Some(if dir.starts_with(file) {
        error.hint("name another folder: `perfquilt init DIR`")
    } else {
        error.hint("rename or remove that file, then run the same command again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;

    #[test]
    fn an_interrupted_init_continues() {
        let folder = tempfile::tempdir().unwrap();
        let redis = template("redis").unwrap();
        let obstacle = folder.path().join("bench-config/workloads");
        fs::create_dir(folder.path().join("bench-config")).unwrap();
        fs::write(&obstacle, "").unwrap();
        let error = init(folder.path(), redis).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.message().ends_with("workloads is not a folder"));
        assert!(!folder.path().join(CONFIG_FILE).exists());
        fs::remove_file(&obstacle).unwrap();
        init(folder.path(), redis).unwrap();
        let mut files = redis.files().into_iter();
        assert!(files.all(|(name, _)| folder.path().join(name).is_file()));
        assert!(init(folder.path(), redis).is_err());
    }

    #[test]
    fn every_template_ends_with_the_file_that_marks_a_workspace() {
        for template in TEMPLATES {
            let last = template.files().pop().map(|(name, _)| name);
            assert_eq!(last, Some(CONFIG_FILE.into()), "{}", template.server);
        }
    }
}
