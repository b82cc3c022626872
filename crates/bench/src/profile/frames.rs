//! Resolves an address to its functions, including inlined ones, with debug information.

use std::path::Path;

/// A function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Demangled name.
    pub(super) function: String,
    /// Source file and line, if known.
    pub(super) place: Option<(String, u32)>,
}

/// The debug information of an object file.
pub(super) struct DebugInfo {
    loader: addr2line::Loader,
}

impl DebugInfo {
    /// Opens the file at `path`; `None` if it cannot be read. In a file without debug information, [`Self::frames`]
    /// finds nothing.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let loader = addr2line::Loader::new(path).ok()?;
        Some(DebugInfo { loader })
    }

    /// Returns the functions at `address`, innermost first. The last one is the function itself; the others are
    /// inlined.
    pub(super) fn frames(&self, address: u64) -> Vec<Frame> {
        let mut found = Vec::new();
        // The library adds 1 to the address.
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
