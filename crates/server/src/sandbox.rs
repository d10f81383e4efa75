//! `-o drop_privileges`: the kernel refuses the system calls that a running server does not need.
//!
//! Two filters of seccomp hold for all threads. What only an attacker would call, above all `execve`,
//! ends the process. Everything else that is not in the list of what the server needs fails with
//! `EPERM`: memcached ends for that as well, but a library that tries something new is no attack.
//! Memory cannot become executable, files can only be read, and sockets can only be made for the
//! machine's own services (`AF_UNIX`), which is how a service manager is told something.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};

/// Calls that end the process.
const DEADLY: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
];

/// Calls that the server needs, whatever their arguments are.
const NEEDED: &[c_long] = &[
    // Connections and datagrams.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ioctl,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_write,
    libc::SYS_writev,
    // What workers wait for.
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    // Memory, and the file of -e.
    libc::SYS_brk,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    // Files that are read again, and those that go when the server ends.
    libc::SYS_faccessat,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    // Threads, signals and time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_nanosleep,
    libc::SYS_prctl,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_uname,
];

/// Those that only this kind of processor has; others have later forms of them alone.
#[cfg(target_arch = "x86_64")]
const NEEDED_HERE: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_epoll_wait,
    libc::SYS_getrlimit,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const NEEDED_HERE: &[c_long] = &[];

/// Filters the system calls of all threads from now on, of those too that they start. It cannot be
/// taken back.
///
/// # Errors
/// If the kernel has no seccomp, or refuses the filters.
pub fn enter() -> io::Result<()> {
    // What is deadly comes first: the other filter forbids to add one.
    for program in [deadly(), needed()] {
        let program = program.map_err(io::Error::other)?;
        apply_filter_all_threads(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

fn deadly() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = DEADLY.iter().map(|&call| (call, Vec::new())).collect();
    compile(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

fn needed() -> Result<BpfProgram, seccompiler::BackendError> {
    let always = NEEDED.iter().chain(NEEDED_HERE);
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        always.map(|&call| (call, Vec::new())).collect();
    let written = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
    rules.insert(libc::SYS_openat, vec![without(2, written)?]);
    rules.insert(libc::SYS_mmap, vec![without(2, libc::PROT_EXEC)?]);
    rules.insert(libc::SYS_mprotect, vec![without(2, libc::PROT_EXEC)?]);
    rules.insert(libc::SYS_socket, vec![equal(0, libc::AF_UNIX)?]);
    // Limits are read, and not set.
    rules.insert(libc::SYS_prlimit64, vec![equal(2, 0)?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![without(1, written)?]);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    compile(rules, refused, SeccompAction::Allow)
}

fn compile(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let processor = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, otherwise, matching, processor)?.try_into()
}

/// That none of these bits is set in an argument.
fn without(argument: u8, bits: i32) -> Result<SeccompRule, seccompiler::BackendError> {
    let bits = u64::from(bits.cast_unsigned());
    when(argument, SeccompCmpOp::MaskedEq(bits), 0)
}

/// That an argument has this value.
fn equal(argument: u8, value: i32) -> Result<SeccompRule, seccompiler::BackendError> {
    when(argument, SeccompCmpOp::Eq, value)
}

fn when(
    argument: u8,
    compare: SeccompCmpOp,
    value: i32,
) -> Result<SeccompRule, seccompiler::BackendError> {
    // Pointers are compared with 0, which all of their bits must be.
    let len = match compare {
        SeccompCmpOp::Eq => SeccompCmpArgLen::Qword,
        _ => SeccompCmpArgLen::Dword,
    };
    let value = u64::from(value.cast_unsigned());
    SeccompRule::new(vec![SeccompCondition::new(argument, len, compare, value)?])
}
