// Copies between the memories of devices, counted in a profile that the runtime wrote. Internal to ort/.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "backend/ort/api.h"

namespace slm::backend::ort {

struct Copies {
  int count = 0;  // Memcpy nodes that ran
  int64_t bytes = 0;
};

// From the text of a profile, a list of events. Errors: kCorrupt.
Result<Copies> CopiesIn(std::string_view profile);

// A folder of this process alone for a session's profile, removed with all that is in it.
class ProfileFolder {
 public:
  ProfileFolder();
  ~ProfileFolder();
  ProfileFolder(const ProfileFolder&) = delete;
  ProfileFolder& operator=(const ProfileFolder&) = delete;
  // Where the profile begins; the runtime adds a time and ".json". Empty when no folder could be made.
  std::string prefix() const { return path_.empty() ? path_ : path_ + "/profile"; }

 private:
  std::string path_;
};
// Ends the session's profile, reads it and takes the file away. Errors: what the runtime says, kIo, kCorrupt.
Result<Copies> EndProfile(const OrtApi& api, OrtSession* session);

}  // namespace slm::backend::ort
