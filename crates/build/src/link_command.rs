//! Turns the command that linked a program into one that works in another folder.

use std::path::{Path, PathBuf};

/// A link command that does not depend on the build tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortableCommand {
    /// The words of the command, with the placeholder `{output}`. It runs in the folder that contains
    /// `files`.
    pub words: Vec<String>,
    /// Input files: the name in that folder and the current path.
    pub files: Vec<(String, PathBuf)>,
}

/// Converts the shell command that links `target`, which ran in the folder `build` below the working folder
/// `work`.
pub(super) fn portable(
    command: &str,
    target: &str,
    build: &Path,
    work: &Path,
) -> Result<PortableCommand, String> {
    let words = split(command)?;
    let link = words
        .split(|word| word == "&&")
        .find(|words| words.windows(2).any(|pair| pair == ["-o", target]))
        .ok_or("the build's last command for it does not link it")?;
    let mut inputs = InputFiles {
        build,
        work,
        compiles: link.iter().any(|word| word.starts_with("-flto")),
        files: Vec::new(),
    };
    let mut portable = Vec::new();
    for (index, word) in link.iter().enumerate() {
        if index > 0 && link[index - 1] == "-o" {
            portable.push("{output}".to_owned());
        } else if let Some(word) = inputs.word(word)? {
            portable.push(word);
        }
    }
    Ok(PortableCommand {
        words: portable,
        files: inputs.files,
    })
}

/// Collects the files of the build that a link command reads.
struct InputFiles<'a> {
    build: &'a Path,
    work: &'a Path,
    /// Whether the link generates code (`-flto`), so that the linker needs the compiler's options.
    compiles: bool,
    files: Vec<(String, PathBuf)>,
}

impl InputFiles<'_> {
    /// Converts a word of the command; `None` if the new command does not need it.
    fn word(&mut self, word: &str) -> Result<Option<String>, String> {
        let of_profile = ["-fprofile-use", "-fprofile-prefix-path"]
            .iter()
            .any(|option| word.starts_with(option));
        if word.contains("-prefix-map=") || (of_profile && !self.compiles) {
            return Ok(None);
        }
        if word.starts_with('@') {
            return Err(format!("its linker reads arguments from a file, {word}"));
        }
        let mut new = String::new();
        if let Some(name) = self.add(word)? {
            new = name;
        } else {
            // `-Wl,--version-script=FILE` and the like.
            for part in word.split_inclusive([',', '=']) {
                let bare = part.trim_end_matches([',', '=']);
                match self.add(bare)? {
                    Some(name) => new.push_str(&part.replacen(bare, &name, 1)),
                    None => new.push_str(part),
                }
            }
        }
        let folder = new.strip_prefix("-L").map(|folder| self.build.join(folder));
        let inside = new.contains(&*self.work.to_string_lossy())
            || folder.is_some_and(|folder| folder.starts_with(self.work));
        if inside {
            return Err(format!("`{word}` names a folder of the build"));
        }
        Ok(Some(new))
    }

    /// Adds the file named by `word` and returns its new name; `None` if `word` is not a file of the build.
    fn add(&mut self, word: &str) -> Result<Option<String>, String> {
        let path = self.build.join(word);
        if !word.contains(['/', '.']) || !path.starts_with(self.work) || !path.is_file() {
            return Ok(None);
        }
        if let Some((name, _)) = self.files.iter().find(|(_, other)| *other == path) {
            return Ok(Some(name.clone()));
        }
        if is_thin_archive(&path) {
            return Err(format!("{word} is a thin archive"));
        }
        let base = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}-{base}", self.files.len());
        self.files.push((name.clone(), path));
        Ok(Some(name))
    }
}

fn is_thin_archive(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 8];
    std::fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok()
        && start == *b"!<thin>\n"
}

/// Splits a shell command into words. The only shell syntax it may use is quoting and `&&`.
fn split(command: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        let shell = |c: char| Err(format!("the command that links it needs a shell (`{c}`)"));
        match (quote, c) {
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), _) if c == open => quote = None,
            (None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some('"'), '\\') => {
                let next = chars.next().unwrap_or_default();
                if !matches!(next, '"' | '\\' | '$' | '`') {
                    word.get_or_insert_default().push('\\');
                }
                word.get_or_insert_default().push(next);
            }
            (None | Some('"'), '$' | '`') => return shell(c),
            (None, ';' | '|' | '<' | '>' | '(' | ')' | '*' | '?') => return shell(c),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a build tree with these files.
    fn tree(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let build = folder.path().join("build");
        for file in files {
            let path = build.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "content").unwrap();
        }
        (folder, build)
    }

    #[test]
    fn commands_of_cmake_are_converted() {
        let (folder, build) = tree(&["a/main.o", "lib/libx.a", "lib/libx2.a", "a/list.map"]);
        let work = folder.path();
        let command = format!(
            ": && /usr/bin/c++ -ffile-prefix-map={0}/src/= -O2 -fuse-ld=mold -Wl,-z,relro \
             -Wl,--version-script={0}/build/a/list.map -DX=\\\"y\\\" a/main.o -o a/d lib/libx.a \
             '/usr/lib/libz.so' lib/libx2.a lib/libx.a -lm && cd {0}/build && cmake -E true",
            work.display()
        );
        let found = portable(&command, "a/d", &build, work).unwrap();
        let expected = "/usr/bin/c++ -O2 -fuse-ld=mold -Wl,-z,relro \
             -Wl,--version-script=0-list.map -DX=\"y\" 1-main.o -o {output} 2-libx.a \
             /usr/lib/libz.so 3-libx2.a 2-libx.a -lm";
        assert_eq!(found.words.join(" "), expected);
        assert_eq!(found.files[2].1, build.join("lib/libx.a"));
        assert_eq!(found.files.len(), 4);
    }

    #[test]
    fn unportable_commands_are_errors_with_a_reason() {
        let (folder, build) = tree(&["main.o", "thin.a"]);
        std::fs::write(build.join("thin.a"), "!<thin>\nx").unwrap();
        let work = folder.path();
        let why = |command: &str| portable(command, "d", &build, work).unwrap_err();
        assert!(why("cc -fuse-ld=mold main.o -o other").contains("last command"));
        assert!(why("cc -fuse-ld=mold @d.rsp -o d").contains("@d.rsp"));
        assert!(why("cc -fuse-ld=lld thin.a -o d").contains("thin.a"));
        assert!(why("cc -fuse-ld=lld -Llib -lx main.o -o d").contains("-Llib"));
        assert!(why("cc $FLAGS main.o -o d").contains("shell"));
        let inside = format!(
            "cc -fuse-ld=mold -Wl,-rpath,{} main.o -o d",
            build.display()
        );
        assert!(why(&inside).contains("rpath"));
    }

    #[test]
    fn profile_options_are_dropped_unless_the_link_compiles() {
        let (folder, build) = tree(&["main.o"]);
        let work = folder.path();
        let profiled = format!(
            "cc -fprofile-use=/p -fprofile-prefix-path={} main.o -o d",
            build.display()
        );
        let found = portable(&profiled, "d", &build, work).unwrap();
        assert_eq!(found.words.join(" "), "cc 0-main.o -o {output}");
        let compiling = profiled.replace("cc ", "cc -flto=2 ");
        let why = portable(&compiling, "d", &build, work).unwrap_err();
        assert!(why.contains("-fprofile-prefix-path"), "{why}");
    }

    #[test]
    fn quotes() {
        assert_eq!(
            split(r#"a 'b c' "d \" e" f\ g "" h"#).unwrap(),
            ["a", "b c", "d \" e", "f g", "", "h"]
        );
    }
}
