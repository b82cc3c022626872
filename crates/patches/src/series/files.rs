//! Which files are the series: quilt's order of looking for them.

use std::path::{Path, PathBuf};

/// Where the series file and its patches are, and who said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesPaths {
    /// The series file as people open it: relative to the workspace unless it is elsewhere.
    pub series: PathBuf,
    /// The folder of patches, likewise.
    pub patches: PathBuf,
    /// Who named them otherwise than the configuration does, for errors.
    pub because: Option<String>,
}

/// What quilt would read: its own notes in `.pc`, and its environment.
#[derive(Debug, Clone, Default)]
pub(super) struct Quilt {
    /// `$QUILT_PC`, `.pc` when it is not set.
    pub pc: Option<PathBuf>,
    /// What `.pc/.quilt_patches` says.
    pub noted_patches: Option<PathBuf>,
    /// What `.pc/.quilt_series` says.
    pub noted_series: Option<PathBuf>,
    /// `$QUILT_PATCHES`.
    pub patches: Option<PathBuf>,
    /// `$QUILT_SERIES`.
    pub series: Option<PathBuf>,
}

/// Finds the series file by `exists`, which is asked about files relative to the workspace; `file` and
/// `patches` are the configured names. The first place is returned when there is none anywhere.
pub(super) fn find(
    quilt: &Quilt,
    file: &Path,
    patches: &Path,
    exists: impl Fn(&Path) -> bool,
) -> SeriesPaths {
    let mut because = Vec::new();
    let mut say =
        |what: &str, path: &Path| because.push(format!("{what} names {}", path.display()));
    let patches = match (&quilt.noted_patches, &quilt.patches) {
        (Some(noted), _) => {
            say(".pc/.quilt_patches", noted);
            noted.clone()
        }
        (None, Some(variable)) => {
            say("QUILT_PATCHES", variable);
            variable.clone()
        }
        (None, None) => patches.to_owned(),
    };
    let file = match (&quilt.noted_series, &quilt.series) {
        (Some(noted), _) => {
            say(".pc/.quilt_series", noted);
            noted.clone()
        }
        (None, Some(variable)) => {
            say("QUILT_SERIES", variable);
            variable.clone()
        }
        (None, None) => file.to_owned(),
    };
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

    fn found(quilt: &Quilt, there: &[&str]) -> (String, String) {
        let exists = |path: &Path| there.iter().any(|known| path == Path::new(known));
        let paths = find(quilt, Path::new("series"), Path::new("patches"), exists);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        (text(paths.series), text(paths.patches))
    }

    #[test]
    fn quilts_order() {
        let path = |text: &str| Some(PathBuf::from(text));
        let all = [".pc/series", "series", "patches/series"];
        let none = Quilt::default();
        for (there, series) in [
            (&all[..], ".pc/series"),
            (&all[1..], "series"),
            (&all[2..], "patches/series"),
            (&[], "series"),
        ] {
            assert_eq!(found(&none, there), (series.into(), "patches".into()));
        }
        let environment = Quilt {
            patches: path("debian/patches"),
            series: path("00list"),
            ..Quilt::default()
        };
        assert_eq!(
            found(&environment, &["debian/patches/00list", "series"]),
            ("debian/patches/00list".into(), "debian/patches".into())
        );
        let noted = Quilt {
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
