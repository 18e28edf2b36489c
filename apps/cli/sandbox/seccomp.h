// The system calls that a sandboxed program is refused.
#pragma once

namespace slm::cli {

// Installs the filter for this process and its children: sockets, namespaces, mounts, tracing, keys, kernel modules, io_uring and calls of
// another architecture fail with EPERM. Async-signal-safe. False when the kernel or this architecture has no such filter.
bool RefuseSystemCalls();

}  // namespace slm::cli
