// The table of verbs, made from verbs.inc so that each verb is named in one place.
#include "verb.h"

namespace slm::cli {

#define SLM_VERB(name, declare, summary) Body declare(CLI::App& app, Io& io);
#include "verbs.inc"
#undef SLM_VERB

const std::vector<Verb>& Verbs() {
#define SLM_VERB(name, declare, summary) {name, summary, declare},
  static const std::vector<Verb> table = {
#include "verbs.inc"
  };
#undef SLM_VERB
  return table;
}

}  // namespace slm::cli
