// A session on the devices that were asked for, and where its nodes went. Internal to ort/.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/ort/runtime.h"

namespace slm::backend::ort {

// What the runtime complains about while a session is made: often the only place that says why a provider took nothing.
class SessionLog {
 public:
  static void Write(void* self, OrtLoggingLevel level, const char* category, const char* id, const char* place, const char* message);
  std::vector<std::string> Take();

 private:
  std::mutex mutex_;  // providers log from threads of their own
  std::vector<std::string> lines_;
};

struct SessionSetup {
  std::string profile;  // beginning of the path of a profile, written when a provider besides the CPU's takes part; "": none
  std::vector<std::pair<std::string, std::string>> config;
};

struct OpenSession {
  std::shared_ptr<Runtime> runtime;
  std::unique_ptr<SessionLog> log;
  Session session;
  std::vector<std::string> providers;  // that it was made with, besides the CPU's
  Placed placed;
};

// A provider with those of its devices that a choice asks for.
struct Candidate {
  std::string name, device;  // the kind of device it was chosen for
  std::vector<const OrtEpDevice*> devices;
  Provider provider;
};
// Providers for the devices of the choice, best first, each once. What stands after "cpu" can get no node. An absent device leaves a note.
Result<std::vector<Candidate>> Candidates(const Runtime& runtime, const Choice& choice, std::vector<std::string>& notes);
// Options of every session, without a provider; and one provider more.
Result<SessionOptions> BaseOptions(const Runtime& runtime, SessionLog& log, const SessionSetup& setup);
Status Append(const Runtime& runtime, OrtSessionOptions* options, const Candidate& candidate, const Choice& choice);

// Tries the choice's providers, best first, and does without one that fails. Errors: kLimit for Choice::rest, what the runtime says of
// the session without any provider.
Result<OpenSession> MakeSession(const std::shared_ptr<Runtime>& runtime, const std::string& path, const Choice& choice,
                                const SessionSetup& setup);

}  // namespace slm::backend::ort
