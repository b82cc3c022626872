//! Files that results are written to.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, access};

use super::Context;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_system::files::write_file;

/// Prints a result, or writes it to `file`.
pub fn deliver(context: &Context, file: Option<&Path>, text: &str) -> Result<()> {
    let Some(file) = file else {
        return context.output.print(text);
    };
    write(file, text.as_bytes())?;
    let note = format!("wrote {}", file.display());
    progress::note(&note);
    Ok(())
}

/// Writes a result to `file`.
pub fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    // A plain file is replaced atomically, so that the old report stays until the new one is whole; devices, pipes and
    // links are written to directly.
    let plain = std::fs::symlink_metadata(file).is_ok_and(|found| found.is_file());
    if plain && access(folder_of(file), Access::WRITE_OK).is_ok() {
        write_file(file, bytes)
    } else {
        std::fs::write(file, bytes).map_err(|error| Error::io("write", file, &error))
    }
}

/// Checks that `file` can be written, before any work is done for it.
pub fn writable(file: &Path) -> Result<()> {
    let refused = |why: &str| Error::output(format!("cannot write {}: {why}", file.display()));
    let folder = folder_of(file);
    if file.is_dir() {
        return Err(refused("it is a folder"));
    }
    if !folder.is_dir() {
        let fault = refused(&format!("there is no folder {}", folder.display()));
        return Err(fault.hint(format!("mkdir -p {}", folder.display())));
    }
    let place = if file.exists() { file } else { folder };
    access(place, Access::WRITE_OK)
        .map_err(|error| refused(&std::io::Error::from(error).to_string()))
}

fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Checks that writing `what` to the file `output` overwrites none of its `inputs`, of which `-` is standard input.
pub fn refuse_overwrite(
    what: &str,
    output: Option<&Path>,
    mut inputs: impl Iterator<Item: AsRef<Path>>,
) -> Result<()> {
    let read = |input: &Path| match input.to_str() {
        Some("-") => identity(Path::new("/dev/stdin")),
        _ => identity(input),
    };
    let written = output.and_then(identity);
    match output
        .filter(|_| written.is_some() && inputs.any(|input| read(input.as_ref()) == written))
    {
        Some(output) => {
            let fault = format!("the {what} would overwrite one of its input files");
            Err(Error::output(fault).at(output, None))
        }
        None => Ok(()),
    }
}

/// Returns device and inode of a plain file.
fn identity(file: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(file).ok()?;
    found.is_file().then(|| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;

    #[test]
    fn a_bad_path_is_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.md");
        let refused = |file: &Path| writable(file).unwrap_err();
        assert!(writable(&file).is_ok());
        assert!(writable(Path::new("/dev/null")).is_ok());
        assert!(refused(folder.path()).message().ends_with("it is a folder"));
        let nowhere = refused(&folder.path().join("none/report.md"));
        assert_eq!(nowhere.kind(), Kind::Usage);
        assert!(nowhere.message().contains("there is no folder"));
        assert!(
            nowhere
                .hint_text()
                .is_some_and(|hint| hint.starts_with("mkdir -p "))
        );
    }

    #[test]
    fn an_old_report_is_replaced_and_a_link_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.md");
        let link = folder.path().join("link.md");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for (to, text) in [(&file, "first"), (&file, "second"), (&link, "third")] {
            write(to, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
