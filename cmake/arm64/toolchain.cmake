# Cross build for 64-bit Arm with Debian's g++, tests run by qemu. The three libraries that the low floors need are taken from
# Debian's headers and sources (the Find files beside this one), so no foreign-architecture package is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# Without -cpu qemu offers every extension it knows; a test takes less with QEMU_CPU in its environment.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;/usr/aarch64-linux-gnu)
list(PREPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
