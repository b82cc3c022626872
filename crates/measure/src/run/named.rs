//! A server given by name: a point of a release built with a recipe, or a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Prepared, build_points, prepare};
use perfquilt_build::{Built, identity_of_files};
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{INSTALL_RESERVED, files_below};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_rebase::PointTrees;

/// A server given by name, built.
#[derive(Debug, Clone)]
pub struct NamedServer {
    /// Its name in messages.
    pub label: String,
    /// The server.
    pub built: Built,
    /// The name of its data, which are those of its release or, for a folder, its own, and the folder of the server that
    /// prepares them.
    pub data: (String, PathBuf),
    /// The recipe it was built with, if known.
    pub recipe: Option<String>,
    /// The release whose configuration and clients it gets.
    pub release: String,
    /// The git tree of its source, if known.
    pub tree: Option<String>,
}

/// A server that exists or can be built, found by its name.
#[derive(Debug)]
pub enum FoundServer {
    /// A point of a release.
    Point {
        /// The release with its series.
        prepared: Box<Prepared>,
        /// The point.
        point: Point,
        /// The recipe that the name has.
        recipe: Option<String>,
    },
    /// The folder of a server built elsewhere.
    Folder(PathBuf),
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
    Error::point(format!(
        "`{text}` is neither a point (0, 3, alone:2, 11.8.6:0, 3@plain) nor a folder"
    ))
    .hint("`perfquilt status` shows the points")
}

/// Returns the release whose series makes the server that `text` names (`None` inside: the current one); `None` where it has
/// no patches or was built elsewhere.
pub fn series_of(text: &str) -> Option<Option<&str>> {
    let name = Name::parse(text)?;
    (!matches!(name.point, Point::BASE | Point::Control)).then_some(name.release)
}

impl FoundServer {
    /// Finds the server that `text` names, without building it: `[RELEASE:]POINT[@RECIPE]`, or the folder of one built
    /// elsewhere.
    pub fn find(ws: &Workspace, text: &str) -> Result<Self> {
        match Name::parse(text) {
            Some(name) => {
                if let Some(recipe) = name.recipe {
                    ws.config.recipe(recipe)?;
                }
                let prepared = prepare(ws, name.release)?;
                prepared.stack.tree(name.point)?;
                Ok(FoundServer::Point {
                    prepared: Box::new(prepared),
                    point: name.point,
                    recipe: name.recipe.map(str::to_owned),
                })
            }
            None if Path::new(text).is_dir() => Ok(FoundServer::Folder(text.into())),
            None => Err(unknown(text)),
        }
    }

    /// Builds the server if necessary, with `recipe` where its name has none.
    pub fn build(self, ws: &Workspace, recipe: &str) -> Result<NamedServer> {
        let (prepared, point, named) = match self {
            FoundServer::Point {
                prepared,
                point,
                recipe,
            } => (prepared, point, recipe),
            FoundServer::Folder(dir) => return folder(ws, &dir, recipe),
        };
        let own = named.as_deref().unwrap_or(recipe);
        let build = |recipe: &str, point: Point| -> Result<(String, Built)> {
            let mut servers = build_points(ws, &prepared, (recipe, None), &[point])?;
            let server = servers
                .pop()
                .ok_or_else(|| Error::internal("nothing was built"))?;
            Ok((server.label, server.built?))
        };
        // The default build of the bare release always prepares the data, whatever the server is.
        let base = build(recipe, Point::BASE)?;
        let by = base.1.dir.clone();
        let (label, built) = match point {
            Point::BASE | Point::Control if own == recipe => base,
            Point::BASE | Point::Control => build(own, Point::BASE)?,
            point => build(own, point)?,
        };
        let release = prepared.release.name.clone();
        Ok(NamedServer {
            label: match &named {
                Some(recipe) => format!("{label} ({recipe})"),
                None => label,
            },
            data: (release.clone(), by),
            recipe: Some(own.to_owned()),
            tree: Some(prepared.stack.tree(point)?),
            built,
            release,
        })
    }
}

fn folder(ws: &Workspace, dir: &Path, recipe: &str) -> Result<NamedServer> {
    let binary = ws.config.recipe(recipe)?.binary.as_deref();
    let absolute = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
    let built = elsewhere(&absolute, binary.unwrap_or_default())?;
    // Data of another server may not be compatible.
    let data = format!("elsewhere-{}", &built.identity[..16]);
    Ok(NamedServer {
        label: dir.display().to_string(),
        data: (data, absolute),
        recipe: None,
        release: ws.config.release_name(&ws.config.upstream.current),
        tree: None,
        built,
    })
}

/// Returns a server built elsewhere. It may run any file of its folder, so its identity covers all of them.
fn elsewhere(dir: &Path, binary: &str) -> Result<Built> {
    let path = dir.join(binary);
    let refused = |why: &str| {
        Error::input_unreadable(format!("cannot read the server {}: {why}", path.display()))
            .hint("the folder is laid out as the recipe's `install` in bench-config/perfquilt.toml")
    };
    let found = std::fs::metadata(&path).map_err(|e| refused(&e.to_string()))?;
    if !found.is_file() {
        return Err(refused("it is not a file"));
    }
    let identity = identity_of_files(dir, &files(dir)?)?;
    Ok(Built::existing(&identity[..40], dir, &identity))
}

/// Returns the files below `dir` by relative path, with their sizes, without those that the cache of built servers adds.
fn files(dir: &Path) -> Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    for path in files_below(dir)? {
        let name = path.strip_prefix(dir).unwrap_or(&path);
        if !INSTALL_RESERVED.iter().any(|taken| name.starts_with(taken)) {
            let size = std::fs::metadata(&path).map_or(0, |found| found.len());
            files.insert(name.to_string_lossy().into_owned(), size);
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
