//! Digests of several parts, and of files.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::threads::lock;
use perfquilt_model::error::{Error, Result};

/// How long after a change another one may have the same times, in nanoseconds: the kernel's clock for files ticks.
const CLOCK_TICK: i64 = 20_000_000;

/// Adds `part`, prefixed by its length, so that different sequences of parts never hash the same bytes.
pub fn add(digest: &mut Sha256, part: &[u8]) {
    digest.update((part.len() as u64).to_le_bytes());
    digest.update(part);
}

/// Returns the digest of `parts`, in hexadecimal.
pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        add(&mut digest, part.as_ref());
    }
    hex::encode(digest.finalize())
}

/// Adds everything that `source` still has.
pub fn add_all(digest: &mut Sha256, source: &mut impl Read) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => digest.update(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The start of the last member of a sealed object. In a text, the quotation marks would be escaped.
const SEAL: &[u8] = b",\"sha256\":\"";

fn seal(object: &[u8]) -> Vec<u8> {
    [
        SEAL,
        hex::encode(Sha256::digest(object)).as_bytes(),
        b"\"}\n",
    ]
    .concat()
}

/// Returns the JSON object `text`, which is not empty, with its digest as a last member `sha256`.
pub fn sealed(text: &[u8]) -> Vec<u8> {
    let object = text.strip_suffix(b"}").unwrap_or(text);
    [object, &seal(object)].concat()
}

/// Refuses a JSON object with another digest than [`sealed`] gave it. Other programs write none.
pub fn check(text: &[u8]) -> Result<()> {
    let found = text.windows(SEAL.len()).rposition(|bytes| bytes == SEAL);
    let intact = found.is_none_or(|at| {
        let (object, seen) = text.split_at(at);
        seen.trim_ascii_end() == seal(object).trim_ascii_end()
    });
    let damaged = || Error::digest("its digest is another, so a bit was flipped");
    intact.then_some(()).ok_or_else(damaged)
}

/// What the kernel knows of a file, which differs whenever the content does: every write sets the time of the change, and
/// nobody can set that one back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: i64,
    changed: i64,
}

impl FileStamp {
    /// Returns the stamp of the file `path`, following links.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        std::fs::metadata(path).map(|found| Self::of_metadata(&found))
    }

    fn of_metadata(found: &Metadata) -> Self {
        let time =
            |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        FileStamp {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: time(found.mtime(), found.mtime_nsec()),
            changed: time(found.ctime(), found.ctime_nsec()),
        }
    }

    /// Whether the file may change once more without another stamp.
    fn is_fresh(self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(0));
        self.changed + CLOCK_TICK > now
    }
}

/// The digests that this process has computed.
static KNOWN: Mutex<Option<HashMap<FileStamp, String>>> = Mutex::new(None);

fn known<T>(work: impl FnOnce(&mut HashMap<FileStamp, String>) -> T) -> T {
    let mut known = lock(&KNOWN);
    work(known.get_or_insert_default())
}

/// Returns the digest of a file's content. Each content is read once.
pub fn of_file(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let stamp = FileStamp::of_metadata(&file.metadata()?);
    if let Some(digest) = known(|known| known.get(&stamp).cloned()) {
        return Ok(digest);
    }
    let mut digest = Sha256::new();
    add_all(&mut digest, &mut file)?;
    let digest = hex::encode(digest.finalize());
    if !stamp.is_fresh() && FileStamp::of_metadata(&file.metadata()?) == stamp {
        known(|known| known.insert(stamp, digest.clone()));
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_of_a_sealed_object_is_found() {
        let text = br#"{"b":[1.5,"x"],"a":{"c":null}}"#;
        let sealed = sealed(text);
        let sealed = &sealed[..];
        let read = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes);
        let mut whole = read(sealed).unwrap();
        for sound in [sealed, &text[..], b"{}"] {
            check(sound).unwrap();
        }
        for bit in 0..8 * sealed.len() {
            let mut flipped = sealed.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A member of another name leaves the others as they are.
            let same = |mut other: serde_json::Value| {
                other
                    .as_object_mut()
                    .unwrap()
                    .retain(|name, _| name.len() == 1);
                other
            };
            let known = |other| same(other) == same(read(text).unwrap());
            assert!(
                check(&flipped).is_err() || read(&flipped).map_or(true, known),
                "bit {bit}"
            );
        }
        whole.as_object_mut().unwrap().remove("sha256");
        assert_eq!(whole, read(text).unwrap());
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
    }

    #[test]
    fn the_digest_is_that_of_the_content_however_it_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let digest = |text: &str| hex::encode(Sha256::digest(text));
        for text in ["one", "two", "six"] {
            // In place, with the same size, and at once.
            std::fs::write(&path, text).unwrap();
            assert_eq!(of_file(&path).unwrap(), digest(text));
            assert_eq!(of_file(&path).unwrap(), digest(text));
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        of_file(&path).unwrap();
        let stamp = FileStamp::of(&path).unwrap();
        let times = std::fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        std::fs::write(&path, "ten").unwrap();
        File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_times(times)
            .unwrap();
        assert_ne!(FileStamp::of(&path).unwrap(), stamp);
        assert_eq!(of_file(&path).unwrap(), digest("ten"));
        let other = folder.path().join("g");
        std::fs::write(&other, "new").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(of_file(&path).unwrap(), digest("new"));
        assert!(of_file(&other).is_err());
    }
}
