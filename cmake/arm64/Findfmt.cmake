# fmt as headers only: the host's library cannot be linked here.
include(${CMAKE_CURRENT_LIST_DIR}/headers.cmake)
slm_borrowed_headers(fmt::fmt fmt)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
set(fmt_FOUND TRUE)
