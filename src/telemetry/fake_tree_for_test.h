// A made-up /sys and /proc in a temporary folder, for tests.
#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace slm::telemetry {

class FakeTree {
 public:
  FakeTree() {
    char name[] = "/tmp/slm_sysfs_XXXXXX";
    root_ = mkdtemp(name);
    chmod(root_.c_str(), 0755);
  }
  ~FakeTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeTree(const FakeTree&) = delete;
  FakeTree& operator=(const FakeTree&) = delete;
  const std::string& root() const { return root_; }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Remove(const std::string& path) const { std::filesystem::remove_all(root_ + "/" + path); }
  // Takes every permission away. Root ignores permissions, so the test must also run under Unprivileged.
  void Deny(const std::string& path) const { chmod((root_ + "/" + path).c_str(), 0); }
  void Zone(const std::string& entry, const std::string& name, const std::string& energy, const std::string& range) const {
    Write("class/powercap/" + entry + "/name", name + "\n");
    Write("class/powercap/" + entry + "/energy_uj", energy + "\n");
    Write("class/powercap/" + entry + "/max_energy_range_uj", range + "\n");
  }

 private:
  std::string root_;
};

// Gives up root's override of file permissions while it lives.
class Unprivileged {
 public:
  Unprivileged() : was_root_(geteuid() == 0 && seteuid(65534) == 0) {}
  ~Unprivileged() {
    if (was_root_ && seteuid(0) != 0) std::abort();
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  bool was_root_;
};

}  // namespace slm::telemetry
