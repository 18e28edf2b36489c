# slm_borrowed_headers(<library> <folder>): an INTERFACE target with only /usr/include/<folder> on its path: all of /usr/include
# would put the host's C library before the target's.
function(slm_borrowed_headers library folder)
  if(NOT IS_DIRECTORY /usr/include/${folder})
    message(FATAL_ERROR "/usr/include/${folder} is missing: run ./dev deps ci")
  endif()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/borrowed/${folder})
  file(CREATE_LINK /usr/include/${folder} ${CMAKE_BINARY_DIR}/borrowed/${folder}/${folder} SYMBOLIC)
  add_library(${library} INTERFACE IMPORTED)
  target_include_directories(${library} INTERFACE ${CMAKE_BINARY_DIR}/borrowed/${folder})
endfunction()
