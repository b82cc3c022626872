//! Which functions an address is in, those that were inlined among them.

use std::path::Path;

/// A function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its demangled name.
    pub(super) function: String,
    /// Source file and line, where they are known.
    pub(super) place: Option<(String, u32)>,
}

/// The debug information of an object file.
pub(super) struct DebugInfo {
    loader: addr2line::Loader,
}

impl DebugInfo {
    /// That of the file at `path`; `None` where it cannot be read. Without debug information, nothing is found
    /// in it.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let loader = addr2line::Loader::new(path).ok()?;
        Some(DebugInfo { loader })
    }

    /// The functions at `address`, the innermost first; the last one is the function itself, all before it
    /// were inlined.
    pub(super) fn frames(&self, address: u64) -> Vec<Frame> {
        let mut found = Vec::new();
        // The library looks at the byte behind it too.
        if address == u64::MAX {
            return found;
        }
        let Ok(mut frames) = self.loader.find_frames(address) else {
            return found;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame
                .function
                .as_ref()
                .and_then(|function| Some(function.demangle().ok()?.into_owned()));
            let place = frame
                .location
                .as_ref()
                .and_then(|place| Some((place.file?.to_owned(), place.line?)));
            found.push(Frame {
                function: name.unwrap_or_default(),
                place,
            });
        }
        found
    }
}
