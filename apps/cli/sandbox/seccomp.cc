// A classic BPF program over seccomp_data (Linux: Documentation/userspace-api/seccomp_filter.rst); see seccomp.h.
#include "sandbox/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <iterator>

namespace slm::cli {
namespace {

#if defined(__x86_64__)
constexpr unsigned kArch = AUDIT_ARCH_X86_64, kMost = 0x40000000;  // from there on: the x32 calls
#elif defined(__aarch64__)
constexpr unsigned kArch = AUDIT_ARCH_AARCH64, kMost = 0xffffffff;
#else
constexpr unsigned kArch = 0, kMost = 0;
#endif

constexpr unsigned kRefused[] = {
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_quotactl,
    SYS_acct,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_memfd_create,
    SYS_seccomp,
    425,
    426,
    427,  // io_uring_setup, _enter, _register: the same numbers on all architectures
    428,
    429,
    430,
    431,
    432,
    433  // open_tree, move_mount, fsopen, fsconfig, fsmount, fspick
};

}  // namespace

bool RefuseSystemCalls() {
  if (kArch == 0) return false;
  constexpr unsigned kRows = std::size(kRefused);
  sock_filter code[4 + kRows + 3];
  unsigned n = 0;
  const auto add = [&](sock_filter row) { code[n++] = row; };
  add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)));
  add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArch, 0, kRows + 2));  // another architecture: refused
  add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  add(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kMost, kRows, 0));
  for (unsigned i = 0; i < kRows; ++i) add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRefused[i], static_cast<unsigned char>(kRows - i), 0));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  const sock_fprog program{static_cast<unsigned short>(n), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace slm::cli
