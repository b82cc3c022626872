//! Names of servers that are files or commands.

use std::path::Path;

use super::ImportedServer;
use perfquilt_model::names::numbered;

/// Returns a name for each file: its stem, and as much of its path as distinguishes it from the others.
pub(super) fn of_files(paths: &[&Path]) -> Vec<String> {
    apart(&paths.iter().map(|path| forms(path)).collect::<Vec<_>>())
}

/// Returns the names that a file may have, from short to long.
fn forms(path: &Path) -> Vec<String> {
    if path == Path::new("-") {
        return vec!["standard input".to_owned()];
    }
    // The shell's names for the output of commands, `<(…)`.
    if path.starts_with("/dev/fd") {
        return vec![path.display().to_string()];
    }
    let text =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let stem = text(path.file_stem());
    let mut forms = vec![stem.clone(), text(path.file_name())];
    let mut longer = stem;
    let folders = path.parent().into_iter().flat_map(Path::components);
    for folder in folders.collect::<Vec<_>>().into_iter().rev() {
        longer = format!(
            "{}/{longer}",
            folder.as_os_str().to_string_lossy().trim_matches('/')
        );
        forms.push(longer.clone());
    }
    forms
}

/// Names the servers of files that have the names `files`, so that no two have one name.
pub(super) fn name(servers: &mut [Vec<ImportedServer>], files: &[String]) {
    if servers
        .iter()
        .flatten()
        .all(|server| server.point.is_some())
    {
        return;
    }
    let forms: Vec<Vec<String>> = servers
        .iter()
        .zip(files)
        .flat_map(|(servers, file)| {
            servers.iter().map(move |server| {
                if server.name.is_empty() {
                    return vec![file.clone()];
                }
                let mut forms = vec![server.name.clone()];
                if !server.variant.is_empty() {
                    forms.push(format!("{} ({})", server.name, server.variant));
                }
                if files.len() > 1 {
                    let last = forms.last().cloned().unwrap_or_default();
                    forms.push(format!("{last} ({file})"));
                }
                forms
            })
        })
        .collect();
    for (server, name) in servers.iter_mut().flatten().zip(apart(&forms)) {
        server.name = name;
    }
}

/// Chooses one of the names that each thing may have, the shortest that no other has; if there is none, the last one with a
/// number.
fn apart(forms: &[Vec<String>]) -> Vec<String> {
    let mut levels = vec![0; forms.len()];
    let chosen = |levels: &[usize]| -> Vec<String> {
        let each = forms.iter().zip(levels);
        each.map(|(forms, level)| forms[*level].clone()).collect()
    };
    loop {
        let names = chosen(&levels);
        let is_shared = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
        let mut changed = false;
        for (place, name) in names.iter().enumerate() {
            if levels[place] + 1 < forms[place].len() && is_shared(name) {
                levels[place] += 1;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let mut names: Vec<String> = Vec::new();
    for name in chosen(&levels) {
        let mut unique = name.clone();
        let mut number = 2;
        while names.contains(&unique) {
            unique = numbered(&name, number);
            number += 1;
        }
        names.push(unique);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: &[&str]) -> Vec<String> {
        let paths: Vec<&Path> = paths.iter().map(Path::new).collect();
        of_files(&paths)
    }

    #[test]
    fn files_of_one_name_keep_apart() {
        assert_eq!(names(&["x/old.txt", "x/new.txt"]), ["old", "new"]);
        assert_eq!(
            names(&["a/bench.txt", "b/bench.txt"]),
            ["a/bench", "b/bench"]
        );
        assert_eq!(
            names(&["bench.txt", "bench.log"]),
            ["bench.txt", "bench.log"]
        );
        assert_eq!(
            names(&["/r/a/x/bench.txt", "/r/b/x/bench.txt", "/r/b/y/bench.txt"]),
            ["a/x/bench", "b/x/bench", "y/bench"]
        );
        assert_eq!(
            names(&["/dev/fd/63", "/dev/fd/62"]),
            ["/dev/fd/63", "/dev/fd/62"]
        );
        assert_eq!(
            names(&["bench.txt", "bench.txt", "-"]),
            ["bench.txt", "bench.txt (2)", "standard input"]
        );
    }
}
