//! A disk that is full at any moment: the error names the cause, no finished work is lost, and the same
//! command continues once there is room.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Finished, Mounted, TestEnvironment};

/// Stands before the C library: of what the process writes to files, `ROOM_LEFT` bytes find room.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

static atomic_long room;

__attribute__((constructor)) static void begin(void)
{
  const char *text = getenv("ROOM_LEFT");
  room = text ? atol(text) : 0;
}

static int full(int fd, size_t size)
{
  struct stat status;
  if (fstat(fd, &status) || !S_ISREG(status.st_mode))
    return 0;
  if (atomic_fetch_sub(&room, (long) size) >= (long) size)
    return 0;
  errno = ENOSPC;
  return 1;
}

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size)
{ return full(fd, size) ? -1 : REAL(write)(fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{ return full(fd, size) ? -1 : REAL(pwrite)(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{ return full(fd, size) ? -1 : REAL(pwrite64)(fd, data, size, at); }
ssize_t writev(int fd, const struct iovec *data, int count)
{
  size_t size = 0;
  for (int i = 0; i < count; i++)
    size += data[i].iov_len;
  return full(fd, size) ? -1 : REAL(writev)(fd, data, count);
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags)
{
  struct stat status;
  if (!fstat(in, &status) && (size_t) status.st_size < size)
    size = status.st_size;
  return full(out, size) ? -1 : REAL(copy_file_range)(in, from, out, to, size, flags);
}
"#;

fn shim(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("full.c"), folder.join("full.so"));
    std::fs::write(&source, SHIM).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(compiled.success());
    library
}

fn with_room(environment: &TestEnvironment, shim: &Path, bytes: u64) -> Finished {
    let mut command = environment.command(&["run", "--blocks", "2", "--json"]);
    command
        .env("LD_PRELOAD", shim)
        .env("ROOM_LEFT", bytes.to_string());
    command.output().unwrap().into()
}

#[test]
fn a_full_disk_is_told_and_the_next_run_goes_on() {
    let environment = TestEnvironment::with_fixture("toy");
    let folder = tempfile::tempdir().unwrap();
    let shim = shim(folder.path());
    let mut refused = 0;
    let mut bytes = 1024;
    loop {
        let finished = with_room(&environment, &shim, bytes);
        environment.wait_until_no_process_is_left();
        if finished.code == Some(0) {
            break;
        }
        refused += 1;
        let told = &finished.stderr;
        assert!(
            told.contains("[PQ0102]") && !told.contains("panicked"),
            "with {bytes} bytes left ({:?}): {told}",
            finished.code
        );
        bytes += bytes / 2;
        assert!(bytes < 1 << 30, "it never gets on");
    }
    assert!(
        refused >= 5,
        "only {refused} of the tries were short of room"
    );
    // What was stored on the way is whole.
    let finished = environment.run(&["report"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

/// As root: the disk with the caches is full when a compiler writes.
#[test]
fn a_full_disk_in_a_build_is_no_fault_of_the_patch() {
    let environment = TestEnvironment::with_fixture("toy");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(mounted) = Mounted::in_memory(&environment.cache(), 4) else {
        return;
    };
    let first = environment.run(&["build", "0"]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let rest = mounted.flood();
    let refused = environment.run(&["build", "1"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("[PQ0102]"), "{}", refused.stderr);
    fs::remove_file(rest).unwrap();
    let again = environment.run(&["build", "1"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}

/// As root: each file system that a run writes to has no room, then a little more, then enough.
#[test]
fn whichever_disk_is_full_it_is_told_and_the_next_run_goes_on() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for folder in [
        ".perfquilt",
        "../cache/perfquilt",
        "../cache/perfquilt/builds",
        "../cache/perfquilt/work",
    ] {
        let environment = TestEnvironment::with_fixture("toy");
        let Some(mounted) = Mounted::in_memory(&environment.workspace().join(folder), 16) else {
            return;
        };
        let rest = mounted.flood();
        let flood = fs::OpenOptions::new().write(true).open(&rest).unwrap();
        let flooded = flood.metadata().unwrap().len();
        let mut refused = 0;
        for room in [0, 64, 160, 320, 640] {
            // What the runs before have written is no room for this one.
            flood.set_len(flooded.saturating_sub(room << 10)).unwrap();
            let finished = environment.run(&["run", "--blocks", "2"]);
            let is_told = finished.code == Some(1) && finished.stderr.contains("[PQ0102]");
            assert!(
                is_told || finished.code == Some(0),
                "{folder} with {room} KiB: {}",
                finished.stderr
            );
            refused += u32::from(is_told);
        }
        assert!(refused > 0, "{folder}");
        fs::remove_file(rest).unwrap();
        let finished = environment.run(&["run", "--blocks", "3"]);
        assert_eq!(finished.code, Some(0), "{folder}: {}", finished.stderr);
    }
}
