//! Locating the series file in quilt's search order.

use std::path::{Path, PathBuf};

/// The paths of the series file and of its patches, and where they were configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesPaths {
    /// The series file; relative to the workspace if it is inside.
    pub series: PathBuf,
    /// The folder of patches; relative to the workspace if it is inside.
    pub patches: PathBuf,
    /// The quilt settings that override the configuration, for errors.
    pub because: Option<String>,
}

/// Quilt's own settings: the files in `.pc` and the environment.
#[derive(Debug, Clone, Default)]
pub(super) struct QuiltSettings {
    /// `$QUILT_PC`; `.pc` if it is not set.
    pub pc: Option<PathBuf>,
    /// The content of `.pc/.quilt_patches`.
    pub noted_patches: Option<PathBuf>,
    /// The content of `.pc/.quilt_series`.
    pub noted_series: Option<PathBuf>,
    /// `$QUILT_PATCHES`.
    pub patches: Option<PathBuf>,
    /// `$QUILT_SERIES`.
    pub series: Option<PathBuf>,
}

/// Finds the series file with `exists`, which tests paths relative to the workspace; `file` and `patches` are the
/// configured paths. Returns the unprefixed path if no candidate exists. `quilt` names existing folders only.
pub(super) fn find(
    quilt: &QuiltSettings,
    file: &Path,
    patches: &Path,
    exists: impl Fn(&Path) -> bool,
) -> SeriesPaths {
    let mut because = Vec::new();
    let mut chosen = |noted: &Option<PathBuf>,
                      variable: &Option<PathBuf>,
                      names: [&str; 2],
                      configured: &Path| {
        let noted = noted.as_ref().map(|path| (names[0], path));
        let Some((what, path)) = noted.or(variable.as_ref().map(|path| (names[1], path))) else {
            return configured.to_owned();
        };
        because.push(format!("{what} names {}", path.display()));
        path.clone()
    };
    let names = [".pc/.quilt_patches", "QUILT_PATCHES"];
    let patches = chosen(&quilt.noted_patches, &quilt.patches, names, patches);
    let names = [".pc/.quilt_series", "QUILT_SERIES"];
    let file = chosen(&quilt.noted_series, &quilt.series, names, file);
    let series = if file.is_absolute() {
        file
    } else {
        let pc = quilt.pc.clone().unwrap_or_else(|| PathBuf::from(".pc"));
        let places = [pc.join(&file), file.clone(), patches.join(&file)];
        places
            .into_iter()
            .find(|place| exists(place))
            .unwrap_or(file)
    };
    SeriesPaths {
        series,
        patches,
        because: (!because.is_empty()).then(|| because.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(quilt: &QuiltSettings, there: &[&str]) -> (String, String) {
        let exists = |path: &Path| there.iter().any(|known| path == Path::new(known));
        let paths = find(quilt, Path::new("series"), Path::new("patches"), exists);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        (text(paths.series), text(paths.patches))
    }

    #[test]
    fn quilts_order() {
        let path = |text: &str| Some(PathBuf::from(text));
        let all = [".pc/series", "series", "patches/series"];
        let none = QuiltSettings::default();
        for (there, series) in [
            (&all[..], ".pc/series"),
            (&all[1..], "series"),
            (&all[2..], "patches/series"),
            (&[], "series"),
        ] {
            assert_eq!(found(&none, there), (series.into(), "patches".into()));
        }
        let environment = QuiltSettings {
            patches: path("debian/patches"),
            series: path("00list"),
            ..QuiltSettings::default()
        };
        assert_eq!(
            found(&environment, &["debian/patches/00list", "series"]),
            ("debian/patches/00list".into(), "debian/patches".into())
        );
        let noted = QuiltSettings {
            noted_patches: path("p"),
            noted_series: path("/elsewhere/series"),
            ..environment
        };
        assert_eq!(
            found(&noted, &all),
            ("/elsewhere/series".into(), "p".into())
        );
        let paths = find(&noted, Path::new("series"), Path::new("patches"), |_| false);
        assert_eq!(
            paths.because.as_deref(),
            Some(".pc/.quilt_patches names p, .pc/.quilt_series names /elsewhere/series")
        );
    }
}
