//! Filters of system calls: what neither a server nor its build needs, and what has had more than its share of the
//! kernel's vulnerabilities.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

use super::domain;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::restrict_children;

/// Numbers of calls that `libc` does not have for every target.
const FCHMODAT2: i64 = 452;
const KEXEC_FILE_LOAD: i64 = if cfg!(target_arch = "x86_64") {
    320
} else {
    294
};

/// Calls that fail with EPERM whatever their arguments.
const FORBIDDEN: &[i64] = &[
    // Mounts and other namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other processes.
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // Keys of the kernel.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Programs and modules in the kernel, and its other large interfaces.
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_vhangup,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // Clocks.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Calls that fail with ENOSYS, so that programs do without them: the flags of `clone3` and `openat2` are not in a register,
/// servers that find no io_uring use another interface, and the memory of a `memfd` counts for no process.
const ABSENT: [i64; 7] = [
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Flags of `clone` that make a namespace.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// Families of sockets that servers use: local ones, IPv4, IPv6 and the kernel's list of addresses. Others, such as
/// those to the host of a virtual machine, are in no network namespace.
const FAMILIES: [u64; 4] = [
    libc::AF_UNIX as u64,
    libc::AF_INET as u64,
    libc::AF_INET6 as u64,
    libc::AF_NETLINK as u64,
];
/// The largest segment of System V's shared memory, in bytes: what nobody has attached counts for no process.
const MAX_SHARED: u64 = 64 << 10;
/// Calls that set a file's mode, each with the number of its argument.
const MODES: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
];
/// Calls that set the mode of a file if they make one, each with the numbers of its flags and of its mode.
const OPENS: &[(i64, u8, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
    (libc::SYS_openat, 2, 3),
];
/// Flags of a call that makes a file, with a name or without.
const MAKING: [u64; 2] = [
    libc::O_CREAT as u64,
    (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64,
];
/// Bits of a mode with which a program has the rights of the file's owner or group: those of this program, for every user
/// that reaches the file.
const SET_ID: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];
/// Requests of `ioctl` that type into a terminal.
const TYPING: [u64; 2] = [0x5412, 0x541c];
/// The request of `ptrace` that concerns the calling process itself.
const TRACE_ME: u64 = 0;
/// Numbers from here on are those of the x32 ABI, which would pass every comparison with another one.
const X32: u32 = 0x4000_0000;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the programs that bubblewrap loads, each open at its beginning.
pub(super) fn files() -> Result<Vec<Arc<File>>> {
    let forbidden = compiled(forbidden().map_err(unknown)?, libc::EPERM)?;
    let absent = compiled(always(&ABSENT), libc::ENOSYS)?;
    [forbidden, absent].iter().map(file).collect()
}

/// Has all children of this program start in a domain of their own and without the calls with which one process observes
/// another, except for git, `perf` and valgrind's control, with which this program counts events of servers.
pub(super) fn restrict() -> Result<()> {
    static PROGRAM: OnceLock<BpfProgram> = OnceLock::new();
    let program = compiled(observing().map_err(unknown)?, libc::EPERM)?;
    let _ = PROGRAM.set(program);
    restrict_children(|exceptions| {
        let rules = domain::rules(exceptions).map_err(std::io::Error::other)?;
        Ok(Box::new(move || {
            let refused = || std::io::Error::from_raw_os_error(libc::EPERM);
            rules.try_clone()?.restrict_self().map_err(|_| refused())?;
            let program = PROGRAM.get().map_or(&[][..], Vec::as_slice);
            seccompiler::apply_filter(program).map_err(|_| refused())
        }))
    });
    Ok(())
}

fn always(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn forbidden() -> std::result::Result<Rules, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let word = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let mut rules = always(FORBIDDEN);
    let flags = (0..u64::BITS).map(|bit| 1 << bit);
    let flags = flags.filter(|flag| NEW_NAMESPACES & flag != 0);
    let clone: std::result::Result<_, _> = flags
        .map(|flag| SeccompRule::new(vec![word(0, MaskedEq(flag), flag)?]))
        .collect();
    rules.insert(libc::SYS_clone, clone?);
    let others: std::result::Result<_, _> =
        FAMILIES.iter().map(|family| word(0, Ne, *family)).collect();
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(others?)?]);
    let typing: std::result::Result<_, _> = TYPING
        .iter()
        .map(|request| SeccompRule::new(vec![word(1, Eq, *request)?]))
        .collect();
    rules.insert(libc::SYS_ioctl, typing?);
    let size = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Gt, MAX_SHARED)?;
    rules.insert(libc::SYS_shmget, vec![SeccompRule::new(vec![size])?]);
    for bit in SET_ID {
        for (call, mode) in MODES {
            let rule = SeccompRule::new(vec![word(*mode, MaskedEq(bit), bit)?])?;
            rules.entry(*call).or_default().push(rule);
        }
        for ((call, flags, mode), flag) in OPENS
            .iter()
            .flat_map(|open| MAKING.map(|flag| (open, flag)))
        {
            let both = vec![
                word(*flags, MaskedEq(flag), flag)?,
                word(*mode, MaskedEq(bit), bit)?,
            ];
            rules
                .entry(*call)
                .or_default()
                .push(SeccompRule::new(both)?);
        }
    }
    Ok(rules)
}

/// Calls with which a process observes others, except for the request of `ptrace` that concerns itself.
fn observing() -> std::result::Result<Rules, seccompiler::BackendError> {
    let mut rules = always(&[
        libc::SYS_perf_event_open,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
    ]);
    let others = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, TRACE_ME)?;
    rules.insert(libc::SYS_ptrace, vec![SeccompRule::new(vec![others])?]);
    Ok(rules)
}

fn compiled(rules: Rules, errno: i32) -> Result<BpfProgram> {
    let arch = std::env::consts::ARCH.try_into().map_err(unknown)?;
    let refusal = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch).map_err(unknown)?;
    let program: BpfProgram = filter.try_into().map_err(unknown)?;
    Ok(if cfg!(target_arch = "x86_64") {
        without_x32(errno, program)
    } else {
        program
    })
}

/// Puts a check before `program` that refuses all calls of the x32 ABI.
fn without_x32(errno: i32, program: BpfProgram) -> BpfProgram {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const ERRNO: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
    let step = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    let mut all = vec![
        step(LOAD, 0, 0), // the number of the call
        step(AT_LEAST, 1, X32),
        step(RETURN, 0, ERRNO | errno.unsigned_abs()),
    ];
    all.extend(program);
    all
}

fn file(program: &BpfProgram) -> Result<Arc<File>> {
    let failed = |error: std::io::Error| {
        Error::sandbox_failed(format!("cannot write a system call filter: {error}"))
    };
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for step in program {
        bytes.extend(step.code.to_ne_bytes());
        bytes.extend([step.jt, step.jf]);
        bytes.extend(step.k.to_ne_bytes());
    }
    let file = tempfile::tempfile().map_err(failed)?;
    // Unlike `write`, this leaves the position at the beginning.
    file.write_all_at(&bytes, 0).map_err(failed)?;
    Ok(Arc::new(file))
}

#[allow(clippy::needless_pass_by_value)] // What `map_err` passes.
fn unknown(error: seccompiler::BackendError) -> Error {
    Error::sandbox_failed(format!("cannot make a system call filter: {error}"))
}
