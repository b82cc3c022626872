//! What a bundle's reader refuses. The kinds are those by which readers of tar archives were led astray: links, sizes and names in
//! extensions, members twice, modes, folders through links, names that some file systems take for the same.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use crate::archive::{self, Source};
use crate::manifest::{Manifest, PackedFile};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;

const PROGRAM: &[u8] = b"#!/bin/sh\nexit 0\n";

fn file(content: &[u8], executable: bool) -> PackedFile {
    PackedFile {
        sha256: hex::encode(Sha256::digest(content)),
        bytes: content.len() as u64,
        executable,
    }
}

/// A bundle of two servers, which share a program, and a text.
fn manifest() -> Manifest {
    let mut manifest = Manifest::new("toy-1.0-make", String::new());
    manifest.needs.architecture = std::env::consts::ARCH.to_owned();
    manifest.servers.insert(Point::BASE, "identity".to_owned());
    for (path, content, executable) in [
        ("observations.jsonl", &b"{}\n"[..], false),
        ("servers/0/bin/toyd", PROGRAM, true),
        ("servers/1/bin/toyd", PROGRAM, true),
        ("servers/1/share/toyd.txt", PROGRAM, false),
        ("workspace/series", b"", false),
    ] {
        manifest
            .files
            .insert(path.to_owned(), file(content, executable));
    }
    manifest
}

fn header(name: &str, bytes: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_path(name).unwrap();
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(EntryType::Regular);
    header.set_cksum();
    header
}

/// The members of an archive.
type Members = Vec<(Header, Vec<u8>)>;

fn members(manifest: &str) -> Members {
    let contents: BTreeMap<String, &[u8]> = [&b"{}\n"[..], PROGRAM, b""]
        .into_iter()
        .map(|content| (hex::encode(Sha256::digest(content)), content))
        .collect();
    let contents = contents.into_iter();
    let contents =
        contents.map(|(digest, content)| (format!("contents/{digest}"), content.to_vec()));
    std::iter::once(("manifest.json".to_owned(), manifest.as_bytes().to_vec()))
        .chain(contents)
        .map(|(name, content)| (header(&name, content.len() as u64), content))
        .collect()
}

fn tar(members: &Members) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (header, content) in members {
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend_from_slice(&[0; 1024]);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// Reads `bytes` as a bundle into a folder; nothing may be beside that, whatever they are.
fn unpacked(bytes: &[u8]) -> (tempfile::TempDir, Result<Manifest>) {
    let folder = tempfile::tempdir().unwrap();
    let (bundle, to) = (folder.path().join("bundle"), folder.path().join("to"));
    std::fs::write(&bundle, bytes).unwrap();
    std::fs::create_dir(&to).unwrap();
    let read = archive::read(&bundle, Some(&to));
    let without = archive::read(&bundle, None);
    assert_eq!(read.is_ok(), without.is_ok());
    let names = std::fs::read_dir(folder.path()).unwrap();
    assert_eq!(names.count(), 2);
    (folder, read)
}

fn refused(what: &str, bytes: &[u8], words: &str) {
    let (_folder, read) = unpacked(bytes);
    let error = read.expect_err(what);
    assert_eq!(error.code(), Error::bundle("").code(), "{what}: {error}");
    assert!(error.to_string().contains(words), "{what}: {error}");
}

fn text(manifest: &Manifest) -> String {
    String::from_utf8(manifest.text().unwrap()).unwrap()
}

#[test]
fn what_was_written_is_read_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle");
    let contents = [&b"{}\n"[..], PROGRAM, b""].into_iter().map(|content| {
        let digest = hex::encode(Sha256::digest(content));
        (digest, Source::Bytes(content.to_vec()))
    });
    let contents = contents.collect();
    let digest = archive::write(&path, &manifest(), &contents).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(digest, hex::encode(Sha256::digest(&bytes)));
    // The tests' own archive is the same one.
    let mut plain = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
    assert!(plain == tar(&members(&text(&manifest()))));
    let (unpacked, read) = unpacked(&bytes);
    assert_eq!(read.unwrap(), manifest());
    let found = |name: &str| std::fs::metadata(unpacked.path().join("to").join(name)).unwrap();
    let (one, other) = (found("servers/0/bin/toyd"), found("servers/1/bin/toyd"));
    assert_eq!((one.ino(), one.mode() & 0o7777), (other.ino(), 0o755));
    let (text, program) = (
        found("servers/1/share/toyd.txt"),
        found("servers/0/bin/toyd"),
    );
    assert_eq!(text.ino(), program.ino());
    // Every bit counts but some of gzip's own, which change nothing.
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        let (folder, read) = self::unpacked(&flipped);
        let program = folder.path().join("to/servers/1/bin/toyd");
        let is_same = |read: Manifest| {
            read == manifest() && std::fs::read(&program).is_ok_and(|found| found == PROGRAM)
        };
        assert!(read.map_or(true, is_same), "{at}");
    }
    for end in 0..bytes.len() {
        assert!(self::unpacked(&bytes[..end]).1.is_err(), "{end}");
    }
}

#[test]
fn archives_of_other_kinds_are_refused() {
    let good = text(&manifest());
    let with = |what: &str, words: &str, change: &dyn Fn(&mut Members)| {
        let mut members = members(&good);
        change(&mut members);
        refused(what, &gzip(&tar(&members)), words);
    };
    let becomes = |what: &str, words: &str, change: &dyn Fn(&mut Header)| {
        with(what, words, &|members| {
            change(&mut members[1].0);
            members[1].0.set_cksum();
        });
    };
    for (kind, words) in [
        (EntryType::Symlink, "symlink"),
        (EntryType::Link, "(link)"),
        (EntryType::Char, "(char)"),
        (EntryType::Block, "(block)"),
        (EntryType::Fifo, "fifo"),
        (EntryType::Directory, "(directory)"),
        (EntryType::GNUSparse, "gnusparse"),
        (EntryType::XHeader, "header)"),
        (EntryType::XGlobalHeader, "header)"),
        (EntryType::GNULongName, "gnulong"),
        (EntryType::GNULongLink, "gnulong"),
        (EntryType::Continuous, "(continuous)"),
        (EntryType::new(b'V'), "(__nonexhaustive(86))"),
    ] {
        becomes(&format!("{kind:?}"), words, &|header| {
            header.set_entry_type(kind)
        });
    }
    becomes("a link to an absolute path", "symlink", &|header| {
        header.set_entry_type(EntryType::Symlink);
        header.set_link_name("/etc/passwd").unwrap();
    });
    becomes(
        "a plain file with a link's name",
        "belongs there",
        &|header| {
            header.set_link_name("/etc/passwd").unwrap();
        },
    );
    becomes("set-user-ID", "belongs there", &|header| {
        header.set_mode(0o4755)
    });
    becomes("a mode with a file type", "belongs there", &|header| {
        header.set_mode(0o100_644)
    });
    becomes("another owner", "belongs there", &|header| {
        header.set_uid(1000)
    });
    becomes("a time", "belongs there", &|header| header.set_mtime(1));
    becomes("a larger size", "belongs there", &|header| {
        header.set_size(1 << 40)
    });
    becomes("a smaller size", "belongs there", &|header| {
        header.set_size(0)
    });
    let name = |name: &'static [u8]| {
        move |header: &mut Header| {
            let field = &mut header.as_mut_bytes()[..100];
            field.fill(0);
            field[..name.len()].copy_from_slice(name);
        }
    };
    becomes(
        "an absolute name",
        "`/etc/cron.d/x`",
        &name(b"/etc/cron.d/x"),
    );
    becomes("a name above", "../../x", &name(b"../../x"));
    becomes("a name that is no text", "\u{fffd}", &name(b"\xff\xfe"));
    becomes("a terminal's command", "\\u{1b}[2J", &name(b"\x1b[2J"));
    // The prefix is put before the name.
    becomes("a prefix", "/etc/", &|header| {
        header.as_mut_bytes()[345..349].copy_from_slice(b"/etc");
    });
    with("a wrong checksum", "belongs there", &|members| {
        members[1].0.as_mut_bytes()[148] = b'9'
    });
    let pax = |body: &[u8]| {
        let mut header = header("x", body.len() as u64);
        header.set_entry_type(EntryType::XHeader);
        header.set_cksum();
        (header, body.to_vec())
    };
    let extension =
        |record: &'static [u8]| move |members: &mut Members| members.insert(1, pax(record));
    with(
        "a size in pax",
        "header)",
        &extension(b"18 size=999999999\n"),
    );
    with(
        "a path in pax",
        "header)",
        &extension(b"20 path=/etc/passwd\n"),
    );
    with("a pax extension first", "header)", &|members| {
        members.insert(0, pax(b"18 size=999999999\n"));
    });
    with("twice", "belongs there", &|members| {
        members.insert(1, members[1].clone())
    });
    with("twice at the end", "more follows", &|members| {
        members.push(members[1].clone())
    });
    with("another order", "belongs there", &|members| {
        members.swap(1, 2)
    });
    with("one missing", "belongs there", &|members| {
        drop(members.remove(1))
    });
    with("the last one missing", "belongs there", &|members| {
        drop(members.pop())
    });
    with("no manifest", "manifest.json", &|members| {
        drop(members.remove(0))
    });
    with("the wrong digest", "has another digest", &|members| {
        let program = members
            .iter_mut()
            .find(|(_, content)| content == PROGRAM)
            .unwrap();
        program.1[0] = b'%';
    });
    let whole = tar(&members(&good));
    let mut padded = whole.clone();
    padded[512 + good.len()] = 1;
    refused("bytes in the padding", &gzip(&padded), "behind the end");
    refused(
        "bytes behind the archive",
        &gzip(&[&whole[..], b"x"].concat()),
        "more follows",
    );
    refused(
        "a second member of gzip",
        &[gzip(&whole), gzip(b"x")].concat(),
        "more follows",
    );
    refused(
        "bytes behind gzip",
        &[gzip(&whole), b"x".to_vec()].concat(),
        "more follows",
    );
    refused("a plain tar archive", &whole, "no bundle");
    refused("nothing", b"", "cut off");
    let link = tempfile::tempdir().unwrap();
    let error = archive::read(link.path(), None).unwrap_err();
    assert!(error.to_string().contains("plain file"), "{error}");
}

#[test]
fn manifests_that_lead_elsewhere_are_refused() {
    let with = |what: &str, words: &str, text: &str| {
        refused(what, &gzip(&tar(&members(text))), words);
    };
    let good = text(&manifest());
    let replaced = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    let path = "servers/0/bin/toyd";
    for wrong in [
        "/etc/passwd",
        "../x",
        "servers/../../x",
        "servers/0/./x",
        "servers//x",
        "servers/",
        "servers",
        "home/x",
        "cache/perfquilt/builds/x",
        "manifest.json",
        "workspace/.perfquilt/results.db",
        "workspace/.git/config",
        "servers/0/a\\\\..\\\\b",
        "servers/0/\\u0000",
        "servers/0/\\u001b[2J",
        "servers/0/\\u202etxt",
        "servers/0/caf\\u00e9",
        "servers/0/cafe\\u0301",
        "servers/0/\u{ff0e}\u{ff0e}",
        "servers/0/x ",
        "servers/0/x.",
        "C:/x",
    ] {
        with(wrong, "not a plain path", &replaced(path, wrong));
    }
    let long = format!("servers/{}", "x/".repeat(300));
    with(
        "a long path",
        "not a plain path",
        &replaced(path, &format!("{long}x")),
    );
    with(
        "case alone",
        "case alone",
        &replaced(path, "servers/1/BIN/toyd"),
    );
    with(
        "below a file",
        "is a file and a folder",
        &replaced(path, "servers/1/share/toyd.txt/x"),
    );
    with(
        "format 2",
        "it has format 2",
        &replaced("\"format\": 1", "\"format\": 2"),
    );
    with(
        "format 0",
        "it has format 0",
        &replaced("\"format\": 1", "\"format\": 0"),
    );
    with(
        "another key",
        "manifest is wrong",
        &replaced("\"commit\"", "\"mode\": 2541, \"commit\""),
    );
    with(
        "a key twice",
        "manifest is wrong",
        &replaced("\"commit\"", "\"commit\": \"\", \"commit\""),
    );
    let twice = format!(
        "\"{path}\": {{\"sha256\": \"\", \"bytes\": 0, \"executable\": true}},\n    \"{path}\""
    );
    with(
        "a path twice",
        "not written as",
        &replaced(&format!("\"{path}\""), &twice),
    );
    with(
        "other white space",
        "not written as",
        &replaced("\n", "\n\n"),
    );
    with("no JSON", "manifest is wrong", "<html>");
    with(
        "a mode",
        "manifest is wrong",
        &replaced("\"executable\": true", "\"executable\": 2541"),
    );
    let digest = &file(PROGRAM, true).sha256;
    with("no digest", "has no SHA-256", &replaced(digest, ""));
    with(
        "digits in capitals",
        "has no SHA-256",
        &replaced(digest, &digest.to_uppercase()),
    );
    with(
        "a path as digest",
        "has no SHA-256",
        &replaced(digest, "../../../../etc/passwd"),
    );
    let bytes = format!("\"bytes\": {}", PROGRAM.len());
    with("two sizes", "two sizes", &replaced(&bytes, "\"bytes\": 1"));
    with(
        "too large",
        "too large",
        &good.replace(&bytes, "\"bytes\": 9000000000000000000"),
    );
    with(
        "a negative size",
        "manifest is wrong",
        &replaced(&bytes, "\"bytes\": -1"),
    );
    let bomb = good.replace(&bytes, "\"bytes\": 4000000000");
    with("a bomb", "would unpack to 40000000", &bomb);
    let mut many = manifest();
    many.files.clear();
    for number in 0..=200_000 {
        many.files
            .insert(format!("servers/{number}"), file(b"", false));
    }
    let many = serde_json::to_string_pretty(&many).unwrap();
    let error = Manifest::parse(many.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("200000 files"), "{error}");
}

#[test]
fn a_manifest_of_zeros_is_not_unpacked() {
    let mut bytes = header("manifest.json", 1 << 30).as_bytes().to_vec();
    bytes.resize(1 << 22, 0);
    refused("a bomb", &gzip(&bytes), "its manifest has 1073741824 bytes");
}

#[test]
fn what_a_machine_lacks_is_named() {
    let mut of = manifest();
    let lacks = |of: &Manifest| of.needs.check().unwrap_err().to_string();
    of.needs.libraries.insert("libnowhere.so.7".to_owned());
    assert!(
        lacks(&of).ends_with("of its servers: libnowhere.so.7"),
        "{}",
        lacks(&of)
    );
    of.needs.processor.insert("avx1024".to_owned());
    assert!(
        lacks(&of).ends_with("this one lacks avx1024"),
        "{}",
        lacks(&of)
    );
    of.needs.architecture = "vax".to_owned();
    assert!(lacks(&of).contains("programs for vax"), "{}", lacks(&of));
    of = manifest();
    of.needs.libraries.insert("libc.so.6".to_owned());
    of.needs.check().unwrap();
}

#[test]
fn a_failed_write_leaves_the_old_file_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle");
    std::fs::write(&path, "old").unwrap();
    let gone = Path::new("/no/such/file");
    let contents = [&b"{}\n"[..], PROGRAM, b""].into_iter().map(|content| {
        let digest = hex::encode(Sha256::digest(content));
        (digest, Source::File(gone.to_owned()))
    });
    assert!(archive::write(&path, &manifest(), &contents.collect()).is_err());
    // A file that changed while it was packed.
    let changed = folder.path().join("changed");
    std::fs::write(&changed, "another content").unwrap();
    let contents = [&b"{}\n"[..], PROGRAM, b""].into_iter().map(|content| {
        let digest = hex::encode(Sha256::digest(content));
        (digest, Source::File(changed.clone()))
    });
    assert!(archive::write(&path, &manifest(), &contents.collect()).is_err());
    std::fs::remove_file(&changed).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}
