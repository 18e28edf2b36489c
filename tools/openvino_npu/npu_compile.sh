#!/bin/sh
# npu_compile MODEL PLATFORM BLOB: npu_compile.exe under Wine. `./dev openvino-npu` puts it beside the program and the compiler's libraries.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
for wine in "${WINE64:-}" /usr/lib/wine/wine64 wine64; do # Debian keeps it off PATH
  if [ -n "$wine" ] && command -v "$wine" >/dev/null; then break; fi
  wine=
done
if [ -z "$wine" ]; then
  echo "npu_compile error start: Wine is not here (Debian: apt-get install wine64)"
  exit 1
fi
# Its own prefix; no window, no crash dialog; the C++ runtime of Microsoft's package instead of Wine's.
export WINEPREFIX="$here/prefix" WINEARCH=win64 WINEDEBUG=-all DISPLAY=
export WINEDLLOVERRIDES="msvcp140,msvcp140_1,vcruntime140,vcruntime140_1,concrt140=n,b;mscoree,mshtml,winemenubuilder.exe="
if [ $# -eq 3 ]; then
  model=$(realpath "$1") && blob=$(realpath "$3") || exit 1
  set -- "Z:$model" "$2" "Z:$blob"
fi
cd "$here" || exit 1
exec "$wine" ./npu_compile.exe "$@"
