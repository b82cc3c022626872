//! A server given by name: a point of a release built with a recipe, or a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{build_points, prepare};
use perfquilt_build::{BuildSeconds, Built, identity_of_files};
use perfquilt_config::INSTALL_RESERVED;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;

/// A server that exists now.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its description, for display.
    pub label: String,
    /// The recipe it was built with, if known.
    pub recipe: Option<String>,
    /// The server.
    pub built: Built,
    /// The release whose configuration and clients it gets.
    pub release: String,
    /// The key of its data: servers of the same release share it.
    pub data: String,
    /// The folder of the built server that prepares the data, if it does not exist.
    pub base: PathBuf,
    /// The git tree of its source, if known.
    pub tree: Option<String>,
}

/// The parts of a server's name.
#[derive(Debug, PartialEq, Eq)]
struct Name<'a> {
    release: Option<&'a str>,
    point: Point,
    recipe: Option<&'a str>,
}

impl<'a> Name<'a> {
    /// Parses `[RELEASE:]POINT[@RECIPE]`.
    fn parse(text: &'a str) -> Option<Self> {
        let (text, recipe) = match text.rsplit_once('@') {
            Some((text, recipe)) if !recipe.is_empty() => (text, Some(recipe)),
            _ => (text, None),
        };
        if let Ok(point) = text.parse() {
            return Some(Name {
                release: None,
                point,
                recipe,
            });
        }
        let (release, point) = text.split_once(':')?;
        Some(Name {
            release: Some(release),
            point: point.parse().ok()?,
            recipe,
        })
    }
}

fn unknown(text: &str) -> Error {
    Error::usage(format!(
        "`{text}` is neither a point (0, 3, alone:2, 11.8.6:0, 3@plain) nor a folder"
    ))
    .hint("`perfquilt status` shows the points")
}

impl Target {
    /// Finds the server that `text` names: `[RELEASE:]POINT[@RECIPE]`, built if necessary (with `recipe` where
    /// the name has none), or the folder of one built elsewhere.
    pub fn find(ws: &Workspace, text: &str, recipe: &str, progress: &dyn Progress) -> Result<Self> {
        match Name::parse(text) {
            Some(name) => Self::point(ws, &name, recipe, progress),
            None if Path::new(text).is_dir() => {
                let binary = ws.config.recipe(recipe)?.binary.as_deref();
                Self::folder(ws, Path::new(text), binary.unwrap_or_default())
            }
            None => Err(unknown(text)),
        }
    }

    /// Returns the release whose series makes the server that `text` names (`None` inside: the current one); `None` where
    /// it has no patches or was built elsewhere.
    pub fn series(text: &str) -> Option<Option<&str>> {
        let name = Name::parse(text)?;
        (!matches!(name.point, Point::BASE | Point::Control)).then_some(name.release)
    }

    /// Checks that `text` names a server, without building it.
    pub fn check(ws: &Workspace, text: &str, progress: &dyn Progress) -> Result<()> {
        match Name::parse(text) {
            Some(name) => {
                name.recipe
                    .map(|recipe| ws.config.recipe(recipe))
                    .transpose()?;
                let prepared = prepare(ws, name.release, progress)?;
                prepared.stack.tree(name.point).map(drop)
            }
            None if Path::new(text).is_dir() => Ok(()),
            None => Err(unknown(text)),
        }
    }

    fn point(
        ws: &Workspace,
        name: &Name<'_>,
        recipe: &str,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let own = name.recipe.unwrap_or(recipe);
        ws.config.recipe(own)?;
        let prepared = prepare(ws, name.release, progress)?;
        let tree = prepared.stack.tree(name.point)?;
        let build = |recipe: &str, point: Point| -> Result<(String, Built)> {
            let mut servers = build_points(ws, &prepared, (recipe, None), &[point], progress)?;
            let server = servers
                .pop()
                .ok_or_else(|| Error::new(Kind::Internal, "nothing was built"))?;
            Ok((server.label, server.built?))
        };
        // The default build of the bare release always prepares the data, whatever the target is.
        let base = build(recipe, Point::BASE)?;
        let (label, built) = match name.point {
            Point::BASE | Point::Control if own == recipe => base.clone(),
            Point::BASE | Point::Control => build(own, Point::BASE)?,
            point => build(own, point)?,
        };
        Ok(Target {
            label: match name.recipe {
                Some(recipe) => format!("{label} ({recipe})"),
                None => label,
            },
            recipe: Some(own.to_owned()),
            built,
            release: prepared.release.name.clone(),
            data: prepared.release.name,
            base: base.1.dir,
            tree: Some(tree),
        })
    }

    fn folder(ws: &Workspace, dir: &Path, binary: &str) -> Result<Self> {
        let absolute = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
        let built = elsewhere(&absolute, binary)?;
        Ok(Target {
            label: dir.display().to_string(),
            recipe: None,
            release: ws.config.release_name(&ws.config.upstream.current),
            // Data of another server may not be compatible.
            data: format!("elsewhere-{}", &built.identity[..16]),
            base: absolute,
            built,
            tree: None,
        })
    }
}

/// Returns a server built elsewhere. It may run any file of its folder, so its identity covers all of them.
fn elsewhere(dir: &Path, binary: &str) -> Result<Built> {
    let path = dir.join(binary);
    let refused = |why: &str| {
        Error::usage(format!("cannot read the server {}: {why}", path.display()))
            .hint("the folder is laid out as the recipe's `install` in bench-config/perfquilt.toml")
    };
    let found = std::fs::metadata(&path).map_err(|e| refused(&e.to_string()))?;
    if !found.is_file() {
        return Err(refused("it is not a file"));
    }
    let identity = identity_of_files(dir, &files(dir)?)?;
    Ok(Built {
        key: identity[..40].to_owned(),
        dir: dir.to_owned(),
        identity,
        seconds: BuildSeconds::default(),
        compiled_units: 0,
        cached: true,
        profile: None,
    })
}

/// Returns the files below `dir` by relative path, with their sizes, without those that the cache of built
/// servers adds. Follows links; skips anything that is neither file nor folder.
fn files(dir: &Path) -> Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        let unread = |e: &std::io::Error| Error::io("read", &folder, e);
        // A link may lead to a folder that contains it.
        if !seen.insert(std::fs::canonicalize(&folder).map_err(|e| unread(&e))?) {
            continue;
        }
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(|e| unread(&e))? {
            paths.push(entry.map_err(|e| unread(&e))?.path());
        }
        paths.sort_unstable();
        for path in paths {
            let name = path.strip_prefix(dir).unwrap_or(&path);
            if INSTALL_RESERVED
                .iter()
                .any(|taken| name == Path::new(taken))
            {
                continue;
            }
            match std::fs::metadata(&path) {
                Ok(found) if found.is_dir() => folders.push(path),
                Ok(found) if found.is_file() => {
                    files.insert(name.to_string_lossy().into_owned(), found.len());
                }
                _ => {}
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_server_built_elsewhere_counts() {
        let folder = tempfile::tempdir().unwrap();
        let server = |name: &str, library: &str| {
            let dir = folder.path().join(name);
            std::fs::create_dir_all(dir.join("bin")).unwrap();
            std::fs::create_dir_all(dir.join("lib")).unwrap();
            std::fs::write(dir.join("bin/d"), "#!/bin/sh\n").unwrap();
            std::fs::write(dir.join("lib/d"), library).unwrap();
            std::os::unix::fs::symlink("..", dir.join("lib/up")).unwrap();
            std::os::unix::fs::symlink("nowhere", dir.join("lib/none")).unwrap();
            dir
        };
        let identity = |dir: &Path| elsewhere(dir, "bin/d").unwrap().identity;
        let (one, same, other) = (server("a", "1"), server("b", "1"), server("c", "2"));
        std::fs::write(one.join("build.json"), "{}").unwrap();
        assert_eq!(identity(&one), identity(&same));
        assert_ne!(identity(&one), identity(&other));
        assert!(elsewhere(&one, "bin").is_err());
    }

    #[test]
    fn names_are_release_point_and_recipe() {
        let name = |text| Name::parse(text).map(|n| (n.release, n.point, n.recipe));
        assert_eq!(name("3"), Some((None, Point::Step(3), None)));
        assert_eq!(
            name("alone:2@pgo"),
            Some((None, Point::Alone(2), Some("pgo")))
        );
        assert_eq!(
            name("11.8.6:without:1@plain"),
            Some((Some("11.8.6"), Point::Without(1), Some("plain")))
        );
        for none in ["", "x", "@pgo", "11.8.6:", "a/b", "3@"] {
            assert_eq!(name(none), None, "{none}");
        }
    }
}
