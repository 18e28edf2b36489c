// A scripted back end: tests of everything above the seam need no model, no weights and no arithmetic.
//
// The script is one conversation: slot i of the cache must receive tokens[i], and once slots [0, i) are filled the logits
// favour tokens[i]. A token that is not the scripted one is an error that names the slot, so a test of the loop checks what was
// fed without looking. Idea: LiteRT-LM's fake executor, which compares its inputs with a script as well.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace slm::backend {

struct FakeScript {
  int vocab_size = 16;   // V
  int max_context = 64;  // S
  int max_tokens = 8;    // prefill chunk
  std::vector<int32_t> tokens;
  // After slots [0, i) are filled this row [V] is returned instead of the one-hot row of tokens[i]. Not checked for NaN: the
  // layers above must notice.
  std::map<int, std::vector<float>> logits;
  // The call that would fill slot `fail_slot` returns this error and fills nothing.
  std::optional<Error> failure;
  int fail_slot = 0;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(FakeScript script);

  // Errors besides those of the seam: kInternal when a token differs from the script (slot, expected and given named).
  Result<Logits> Forward(std::span<const int32_t> tokens, LogitsOf which) override;
  Status Rewind(int position) override;
  int used() const override { return used_; }
  const Capabilities& capabilities() const override { return capabilities_; }
  std::vector<PlacementRow> Placement() const override;

  // Continues with another conversation; what is in the cache stays.
  void SetTokens(std::vector<int32_t> tokens) { script_.tokens = std::move(tokens); }
  FakeScript& script() { return script_; }

  // What was asked of this back end so far.
  const std::vector<int>& chunks() const { return chunks_; }    // tokens of each successful Forward
  const std::vector<int>& rewinds() const { return rewinds_; }  // position of each successful Rewind

 private:
  Status Check(std::span<const int32_t> tokens) const;
  void FillRow(int slot, float* row) const;

  FakeScript script_;
  Capabilities capabilities_;
  int used_ = 0;
  std::vector<float> rows_;  // [max_tokens][V]
  std::vector<int> chunks_, rewinds_;
};

}  // namespace slm::backend
