include(${CMAKE_CURRENT_LIST_DIR}/headers.cmake)
slm_borrowed_headers(nlohmann_json::nlohmann_json nlohmann)
set(nlohmann_json_FOUND TRUE)
