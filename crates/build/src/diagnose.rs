//! Finds the decisive error message in a build program's output.

use std::path::Path;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Cause of a failed build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A source file does not compile.
    Compile,
    /// The objects cannot be linked.
    Link,
    /// The build files are wrong, or a dependency is missing.
    Configure,
    /// No space left on the device.
    DiskFull,
    /// No process or thread could be started.
    NoProcesses,
    /// A compiler was killed, most likely for want of memory.
    Killed,
    /// Something else.
    Other,
}

/// The error message with its position and context.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub cause: Cause,
    /// Relative to the source tree if it is inside.
    pub file: Option<String>,
    pub line: Option<usize>,
    pub message: String,
    /// The message and the lines that follow it, as the program wrote them.
    pub excerpt: Vec<String>,
}

/// Lines shown from the message on.
const SHOWN: usize = 8;

/// Lines shown above a message of make or ninja.
const ABOVE: usize = 4;

/// Patterns in descending order of explanatory value; the first matching line wins.
struct Patterns {
    disk_full: Regex,
    no_processes: Regex,
    killed: Regex,
    cmake: Regex,
    compile: Regex,
    undefined: Regex,
    link: Regex,
    ninja: Regex,
    /// A line of source text below a message, as gcc shows it.
    source: Regex,
    /// A compiler's message with a position.
    message: Regex,
}

// The patterns are constant and tested.
#[allow(clippy::expect_used)]
static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let regex = |text: &str| Regex::new(text).expect("a valid pattern");
    Patterns {
        // Linkers write through memory maps: a full disk may show as a bus error there.
        disk_full: regex(
            r"No space left on device|Disk quota exceeded|Disk full\?|signal 7 \[Bus error\]",
        ),
        no_processes: regex(
            r"\b(?:v?fork|clone|posix_spawn|pthread_create|create thread)\b.*Resource temporarily unavailable|^\S+: (?:\d+: )?Cannot fork",
        ),
        // A program's own message, and not one that a command or a source line quotes.
        killed: regex(
            r"^(?:(?:\S*/)?[\w.+-]+: |LLVM ERROR: )?(?:(?:fatal )?error: |fatal: )?(?:Killed signal|virtual memory exhausted|out of memory)|terminated with signal 9 \[Killed\]",
        ),
        cmake: regex(
            r"^CMake Error(?: at (?P<file>[^:]+):(?P<line>\d+))?(?: \([^)]*\))?:\s*(?P<message>.*)$",
        ),
        // gcc, clang (file:line:column), bison (file:line.column-column), older yaccs (file:line).
        compile: regex(
            r"^(?P<file>[^\s:][^:]*):(?P<line>\d+)(?:[.:][\d.-]+)?: (?:fatal )?error: (?P<message>.+)$",
        ),
        undefined: regex(
            r"(?:undefined reference to|undefined symbol:|multiple definition of|duplicate symbol:) *(?P<message>.+)$",
        ),
        link: regex(
            r"^(?:\S*/)?(?:ld|ld\.\w+|mold|collect2)(?:\.real)?: (?:fatal: |error: )*(?P<message>.+)$",
        ),
        ninja: regex(r"^(?:ninja: (?:error|fatal): |make(?:\[\d+\])?: \*\*\* )(?P<message>.+)$"),
        source: regex(r"^\s*\d*\s*\|"),
        message: regex(r"^[^\s:][^:]*:\d+:\d+: (?:(?:fatal )?error|warning|note): "),
    }
});

/// Finds the fault in `output` of a build of the source tree `src`.
pub(super) fn find(output: &[String], src: &Path, build: &Path) -> Fault {
    let patterns = &*PATTERNS;
    let relative = |text: &str| shorten(text, src, build);
    let excerpt = |from: usize| -> Vec<String> {
        output[from..]
            .iter()
            .take(SHOWN)
            .take_while(|line| !line.starts_with("FAILED: ") && !line.starts_with("ninja: "))
            .map(|line| relative(line))
            .collect()
    };
    let fault = |cause, index: usize, message: String| Fault {
        cause,
        file: None,
        line: None,
        message,
        excerpt: excerpt(index),
    };
    let placed = |cause, index: usize, message: String, found: &Captures| Fault {
        file: found.name("file").map(|file| relative(file.as_str())),
        line: found
            .name("line")
            .and_then(|line| line.as_str().parse().ok()),
        ..fault(cause, index, message)
    };
    // Source lines quoted by a compiler may mention these errors without one having occurred.
    let happened = |regex: &Regex| {
        let mut lines = output.iter().enumerate();
        lines.position(|(index, line)| regex.is_match(line) && !is_source(output, index))
    };

    if let Some(index) = happened(&patterns.disk_full) {
        return fault(Cause::DiskFull, index, relative(&output[index]));
    }
    if let Some(index) = happened(&patterns.no_processes) {
        return fault(Cause::NoProcesses, index, relative(&output[index]));
    }
    if let Some(index) = happened(&patterns.killed) {
        return fault(Cause::Killed, index, relative(&output[index]));
    }
    for (index, line) in output.iter().enumerate() {
        if let Some(found) = patterns.cmake.captures(line) {
            // CMake puts its message on the lines below, indented.
            let below = output[index + 1..].iter().map(|line| line.trim());
            let mut lines = std::iter::once(found["message"].trim())
                .chain(below)
                .filter(|line| !line.is_empty());
            let mut message = lines.next().unwrap_or("CMake failed").to_owned();
            if let (true, Some(what)) = (message.ends_with(':'), lines.next()) {
                message = format!("{message} {what}");
            }
            return placed(Cause::Configure, index, relative(&message), &found);
        }
        if let Some(found) = patterns.compile.captures(line) {
            // lld writes its errors in the compiler's form, without a line number in front.
            return placed(Cause::Compile, index, relative(&found["message"]), &found);
        }
    }
    let is_undefined = |line: &String| patterns.undefined.is_match(line);
    if let Some(index) = output.iter().position(is_undefined) {
        let fault = fault(Cause::Link, index, String::new());
        return link_fault(&output[index..], &relative, fault);
    }
    for (cause, regex) in [
        (Cause::Link, &patterns.link),
        (Cause::Other, &patterns.ninja),
    ] {
        let informative = |line: &&String| {
            !line.contains("build stopped: subcommand failed") && !line.contains("ld returned")
        };
        let index = output
            .iter()
            .position(|line| regex.is_match(line) && informative(&line));
        if let Some(index) = index
            && let Some(found) = regex.captures(&output[index])
        {
            let fault = fault(cause, index, relative(&found["message"]));
            // Make says last what ended it, below what its commands said.
            let above = output[..index].iter().rev().take(ABOVE).rev();
            let above = above
                .map(|line| relative(line))
                .filter(|_| cause == Cause::Other);
            return Fault {
                excerpt: above.chain(fault.excerpt).collect(),
                ..fault
            };
        }
    }
    let failed = output.iter().position(|line| line.starts_with("FAILED: "));
    let from = failed.map_or(output.len().saturating_sub(SHOWN), |index| index + 1);
    let message = match failed {
        Some(index) => format!("{} failed", output[index]["FAILED: ".len()..].trim()),
        None => "the build failed".to_owned(),
    };
    let shown = output[from..].iter().take(SHOWN);
    Fault {
        excerpt: shown.map(|line| relative(line)).collect(),
        ..fault(Cause::Other, from, message)
    }
}

/// Whether a line of `output` is source text that a compiler quotes below a message. Gcc puts a bar before it; old
/// versions of clang quote it as it is, indented, directly below the message.
fn is_source(output: &[String], index: usize) -> bool {
    let line = &output[index];
    let below_message = || index > 0 && PATTERNS.message.is_match(&output[index - 1]);
    PATTERNS.source.is_match(line) || (line.starts_with([' ', '\t']) && below_message())
}

/// Completes the fault of an undefined or duplicate symbol: its position is on the same line (`ld`) or on one of
/// the next lines (`>>> referenced by`, lld and mold).
fn link_fault(output: &[String], relative: &dyn Fn(&str) -> String, fault: Fault) -> Fault {
    let line = &output[0];
    let message = PATTERNS
        .undefined
        .find(line)
        .map_or(line.as_str(), |found| found.as_str());
    let near = output.iter().take(4);
    let place = near
        .flat_map(|line| line.split([' ', '(', ')']))
        .find_map(|word| {
            let mut parts = word.trim_end_matches(':').split(':');
            let file = parts.next()?;
            let extension = Path::new(file).extension()?.to_str()?;
            let source = ["c", "cc", "cpp", "cxx", "C", "h", "hpp", "ic", "S"].contains(&extension);
            let line = parts.next().and_then(|text| text.parse().ok());
            source.then(|| (relative(file), line))
        });
    Fault {
        file: place.as_ref().map(|(file, _)| file.clone()),
        line: place.and_then(|(_, line)| line),
        message: relative(message),
        ..fault
    }
}

/// Makes the paths in `text` relative to the source tree and marks paths in the build tree with `(build)`.
fn shorten(text: &str, src: &Path, build: &Path) -> String {
    let text = text.replace(&format!("{}/", src.display()), "");
    if build == src {
        return text;
    }
    // ccache makes paths relative to the build tree.
    text.replace("../src/", "")
        .replace(&format!("{}/", build.display()), "(build)/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(text: &str) -> Fault {
        let output: Vec<String> = text.lines().map(str::to_owned).collect();
        find(&output, Path::new("/w/src"), Path::new("/w/build"))
    }

    #[test]
    fn compiler_error() {
        let fault = find_in(
            "FAILED: CMakeFiles/app.dir/main.c.o \n\
             /usr/bin/cc -c /w/src/sql/main.c\n\
             /w/src/sql/main.c: In function ‘main’:\n\
             /w/src/sql/main.c:3:9: warning: unused\n\
             /w/src/sql/main.c:5:3: error: ‘x’ undeclared (first use in this function)\n    5 |   x;\n\
             /w/src/sql/main.c:9:3: error: second\n\
             ninja: build stopped: subcommand failed.",
        );
        assert_eq!(fault.cause, Cause::Compile);
        assert_eq!(fault.file.as_deref(), Some("sql/main.c"));
        assert_eq!(fault.line, Some(5));
        assert_eq!(fault.message, "‘x’ undeclared (first use in this function)");
        assert_eq!(fault.excerpt.len(), 3);
        assert!(fault.excerpt[0].starts_with("sql/main.c:5:3"));
    }

    #[test]
    fn fatal_bison_and_generated() {
        let fault = find_in("/w/src/a.h:1:10: fatal error: b.h: No such file or directory");
        assert_eq!(fault.message, "b.h: No such file or directory");
        let fault = find_in("/w/src/sql/sql_yacc.yy:12.3-7: error: syntax error");
        assert_eq!((fault.line, fault.cause), (Some(12), Cause::Compile));
        let fault = find_in("../src/sql/a.cc:12:3: error: bad");
        assert_eq!(fault.file.as_deref(), Some("sql/a.cc"));
        let fault = find_in("/w/build/sql/lex.h:2:1: error: bad");
        assert_eq!(fault.file.as_deref(), Some("(build)/sql/lex.h"));
    }

    #[test]
    fn undefined_symbols_of_all_linkers() {
        for (text, line) in [
            (
                "/usr/bin/ld: a.o: in function `main':\n/w/src/main.c:3: undefined reference to `foo'\ncollect2: error: ld returned 1 exit status",
                Some(3),
            ),
            (
                "/usr/bin/ld: a.o: in function `main':\nmain.c:(.text+0x5): undefined reference to `foo'",
                None,
            ),
            (
                "mold: error: undefined symbol: foo\n>>> referenced by main.c\n>>>               a.o:(main)",
                None,
            ),
            (
                "ld.lld: error: undefined symbol: foo\n>>> referenced by main.c:3 (/w/src/main.c:3)",
                Some(3),
            ),
        ] {
            let fault = find_in(text);
            assert_eq!(fault.cause, Cause::Link, "{text}");
            assert_eq!(fault.file.as_deref(), Some("main.c"), "{text}");
            assert_eq!(fault.line, line, "{text}");
            assert!(fault.message.contains("foo"), "{text}");
        }
        let fault = find_in(
            "/usr/bin/ld: cannot find -lnuma: No such file or directory\ncollect2: error: ld returned 1 exit status",
        );
        assert_eq!(fault.cause, Cause::Link);
        assert_eq!(
            fault.message,
            "cannot find -lnuma: No such file or directory"
        );
    }

    #[test]
    fn errors_of_the_machine_come_first() {
        let fault = find_in(
            "/w/src/a.c:1:1: error: x\n/tmp/cc.s: fatal error: error writing: No space left on device",
        );
        assert_eq!(fault.cause, Cause::DiskFull);
        let fault = find_in("mold: failed to write to an output file. Disk full?");
        assert_eq!(fault.cause, Cause::DiskFull);
        let fault = find_in("c++: fatal error: Killed signal terminated program cc1plus");
        assert_eq!(fault.cause, Cause::Killed);
        for said in [
            "collect2: fatal error: vfork: Resource temporarily unavailable",
            "c++: fatal error: cannot execute 'cc1plus': posix_spawn: Resource temporarily unavailable",
            "/bin/sh: 1: Cannot fork",
        ] {
            assert_eq!(find_in(said).cause, Cause::NoProcesses, "{said}");
        }
    }

    #[test]
    fn quoted_source_lines_are_not_errors() {
        let said = "msg(\"out of memory: No space left on device\");";
        for excerpt in [
            format!("    5 |   {said}"),
            format!("      |   {said}"),
            format!("  {said}"),
        ] {
            let fault = find_in(&format!(
                "/w/src/x.cc:5:3: error: ‘msg’ was not declared in this scope\n{excerpt}\n   ^~~"
            ));
            assert_eq!(fault.cause, Cause::Compile, "{excerpt}");
            assert_eq!(fault.file.as_deref(), Some("x.cc"));
            assert_eq!(fault.line, Some(5));
        }
        let fault = find_in("cc1plus: out of memory allocating 65536 bytes");
        assert_eq!(fault.cause, Cause::Killed);
    }

    #[test]
    fn commands_that_mention_an_error_are_not_errors() {
        let fault = find_in(
            "cc -DNO_MEMORY=\"fatal error: out of memory\" -c /w/src/a.c\n\
             /w/src/a.c:7:1: error: expected ‘;’",
        );
        assert_eq!(fault.cause, Cause::Compile);
        assert_eq!(fault.line, Some(7));
        for text in [
            "LLVM ERROR: out of memory",
            "virtual memory exhausted: Cannot allocate memory",
            "x86_64-linux-gnu-g++-12: fatal error: Killed signal terminated program cc1plus",
            "collect2: fatal error: ld terminated with signal 9 [Killed]",
        ] {
            assert_eq!(find_in(text).cause, Cause::Killed, "{text}");
        }
    }

    #[test]
    fn cmake_errors() {
        let fault = find_in(
            "CMake Error at cmake/libfmt.cmake:12 (MESSAGE):\n  libfmt not found\n\nCall Stack:",
        );
        assert_eq!(fault.cause, Cause::Configure);
        assert_eq!(fault.file.as_deref(), Some("cmake/libfmt.cmake"));
        assert_eq!(
            (fault.line, fault.message.as_str()),
            (Some(12), "libfmt not found")
        );
        let fault = find_in(
            "CMake Error at CMakeLists.txt:3 (add_library):\n  Cannot find source file:\n\n    lib/three.c\n",
        );
        assert_eq!(fault.message, "Cannot find source file: lib/three.c");
        let fault = find_in("CMake Error: The source directory does not exist.");
        assert_eq!(fault.message, "The source directory does not exist.");
    }

    #[test]
    fn anything_else_shows_its_last_lines() {
        let fault = find_in(
            "ninja: error: '/w/src/x.c', needed by 'x.o', missing and no known rule to make it",
        );
        assert_eq!(
            fault.message,
            "'x.c', needed by 'x.o', missing and no known rule to make it"
        );
        let fault = find_in("make: *** [Makefile:5: server] Error 1");
        assert_eq!(fault.message, "[Makefile:5: server] Error 1");
        let fault = find_in(
            "FAILED: gen.h \n./gen\nSegmentation fault\nninja: build stopped: subcommand failed.",
        );
        assert_eq!(fault.message, "gen.h failed");
        assert_eq!(fault.excerpt[1], "Segmentation fault");
        assert_eq!(find_in("").message, "the build failed");
    }
}
