//! Virtual addresses of a process: drawn from a seed instead of by the kernel at each start.

/// Unit of stack shifts in bytes: the alignment of the stack.
const STACK_STEP: usize = 16;
/// Number of different stack shifts: up to a page, the range that indexes first-level caches.
const STACK_STEPS: u64 = 256;
/// The smallest distance between the top of the address space and the first mapping that Linux allows, in bytes.
const SMALLEST_GAP: u64 = 128 << 20;
/// Size of a page in bytes.
const PAGE: u64 = 4096;
/// Number of different places of the first mapping: 16 MiB in pages.
const MAP_STEPS: u64 = 4096;
/// Name of the environment variable whose length shifts the stack.
const STACK_VARIABLE: &str = "PERFQUILT_STACK";

/// Where a process has its stack and its first mapping. Two processes with the same program and the same places, and
/// environments and arguments of equal lengths, have the same virtual addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    stack: u64,
    map: u64,
}

impl Addresses {
    /// Draws places from `seed`.
    pub fn of(seed: u64) -> Self {
        Addresses {
            stack: seed % STACK_STEPS,
            map: seed / STACK_STEPS % MAP_STEPS,
        }
    }

    /// Returns the environment variable that shifts the stack.
    pub(super) fn variable(self) -> (&'static str, String) {
        let length = usize::try_from(self.stack).unwrap_or(0) * STACK_STEP;
        (STACK_VARIABLE, "x".repeat(length))
    }

    /// Gives the calling process these places from its next `exec` on: no address is drawn by the kernel, and the
    /// limit of the stack's size, below which mappings begin, decides where they begin (`mmap_base` in Linux'
    /// `mm/util.c`). Only makes system calls that are async-signal-safe.
    ///
    /// # Errors
    /// The error of `personality(2)`, which some containers forbid; nothing is changed then.
    pub(super) fn settle(self) -> std::io::Result<()> {
        fix()?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Stack);
        let gap = SMALLEST_GAP + self.map * PAGE;
        if limit.maximum.is_none_or(|maximum| gap <= maximum) {
            let limit = rustix::process::Rlimit {
                current: Some(gap),
                ..limit
            };
            let _ = rustix::process::setrlimit(rustix::process::Resource::Stack, limit);
        }
        Ok(())
    }
}

/// Keeps the kernel from drawing addresses for what the calling thread executes.
#[allow(unsafe_code)]
fn fix() -> std::io::Result<()> {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: this call reads and writes no memory of the process.
    let current = unsafe { libc::personality(ASK) };
    let current = libc::c_ulong::try_from(current).map_err(|_| std::io::Error::last_os_error())?;
    // `ADDR_NO_RANDOMIZE` is a flag of the low 32 bits.
    let flags = current | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
    // SAFETY: as above.
    if unsafe { libc::personality(flags) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// Returns whether this process may decide the addresses of its children.
pub fn may_fix_addresses() -> bool {
    // Tried in a temporary thread: the setting is one of threads.
    std::thread::spawn(|| fix().is_ok()).join().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::*;

    #[test]
    fn seeds_draw_places_within_their_ranges() {
        assert_eq!(Addresses::of(0), Addresses { stack: 0, map: 0 });
        let last = Addresses::of(u64::MAX);
        assert_eq!((last.stack, last.map), (255, 4095));
        assert_eq!(last.variable().1.len(), 4080);
        assert_ne!(Addresses::of(256), Addresses::of(0));
    }

    #[test]
    fn the_same_seed_gives_the_same_addresses() {
        if !may_fix_addresses() {
            // A container that forbids it.
            return;
        }
        let maps = |seed: u64| {
            let output = Command::new("cat")
                .args(["/proc/self/maps"])
                .addresses(Addresses::of(seed))
                .run()
                .unwrap();
            let text = output.stdout_text();
            let ranges = text.lines().filter(|line| !line.contains("[v"));
            let ranges: Vec<String> = ranges
                .filter_map(|line| line.split(' ').next().map(str::to_owned))
                .collect();
            assert!(ranges.len() > 5, "{text}");
            ranges
        };
        assert_eq!(maps(7), maps(7));
        // Another place of the first mapping.
        assert_ne!(maps(7), maps(7 + 256 * 5));
    }
}
